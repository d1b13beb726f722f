// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Tells at once when a process begins to wait for a file lock: which file, who waits, and who took
 * the lock. Nothing runs while locks are free (kernel 6.9 and later, src/locks/watch.rs).
 */
#include "kernel.h"

/* include/linux/filelock.h; FILE_LOCK_DEFERRED is what a request gets that has to wait. */
#define FILE_LOCK_DEFERRED 1
#define FL_OFDLCK 1024

enum { MAP_RINGBUF = 27 };

struct file_lock_core {
	struct file_lock_core *flc_blocker;
	unsigned int flc_flags;
	int flc_pid;
} KERNEL_TYPE;

struct file_lock {
	struct file_lock_core c;
} KERNEL_TYPE;

struct super_block {
	u32 s_dev;
} KERNEL_TYPE;

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
} KERNEL_TYPE;

struct told {
	u64 inode;
	u32 device;
	u32 waiter;
	int holder;
	u32 kind; /* 0 flock, 1 a process's, 2 an open file's */
};

struct {
	MAP_UINT(type, MAP_RINGBUF);
	MAP_UINT(max_entries, 4096); /* what does not fit is found in /proc/locks */
} waits SEC(".maps");

static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*const bpf_ringbuf_output)(void *ringbuf, void *data, u64 size,
					u64 flags) = (void *)130;

/* Not inline, so that BTF has struct told, of which the loader is generated. */
static __attribute__((noinline)) long tell(struct told *told)
{
	return bpf_ringbuf_output(&waits, told, sizeof(*told), 0);
}

INLINE int blocks(struct inode *inode, struct file_lock *lock, int result, u32 kind)
{
	struct file_lock_core *held;
	struct told told = {};

	/* Newer verifiers want to be shown that there is a lock. */
	if (result != FILE_LOCK_DEFERRED || !lock)
		return 0;
	held = lock->c.flc_blocker;
	told.inode = inode->i_ino;
	told.device = inode->i_sb->s_dev;
	told.waiter = bpf_get_current_pid_tgid() >> 32;
	/* It may have been let go just now: then the number is nobody's, or of no account. */
	told.holder = held ? held->flc_pid : -1;
	told.kind = kind == 1 && lock->c.flc_flags & FL_OFDLCK ? 2 : kind;
	tell(&told);
	return 0;
}

/* Arguments: struct inode *inode, struct file_lock *lock, int result */
SEC("tp_btf/flock_lock_inode")
int on_flock(u64 *ctx)
{
	return blocks((struct inode *)ctx[0], (struct file_lock *)ctx[1], (int)ctx[2], 0);
}

SEC("tp_btf/posix_lock_inode")
int on_posix(u64 *ctx)
{
	return blocks((struct inode *)ctx[0], (struct file_lock *)ctx[1], (int)ctx[2], 1);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
