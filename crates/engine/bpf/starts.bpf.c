// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Tells at once what has started: a process that runs another program, a new group
 * (src/starts.rs). Nothing else on the machine is looked at.
 */
#include "kernel.h"

enum { MAP_RINGBUF = 27, PATH_BYTES = 248 };

struct told {
	u32 pid;	/* 0: a group, by its path within its hierarchy */
	u32 path_bytes; /* with the zero at its end */
	char path[PATH_BYTES];
};

struct {
	MAP_UINT(type, MAP_RINGBUF);
	MAP_UINT(max_entries,
		 262144); /* what does not fit is counted, and all is looked at again */
} starts SEC(".maps");

/* Starts that found the ring full. */
struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} lost SEC(".maps");

static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*const bpf_probe_read_kernel_str)(void *to, u32 bytes, const void *from) = (void *)115;
static long (*const bpf_ringbuf_output)(void *ringbuf, void *data, u64 size,
					u64 flags) = (void *)130;

/* Not inline, so that BTF has struct told, of which the loader is generated. */
static __attribute__((noinline)) int tell(struct told *told, u64 bytes)
{
	u32 key = 0;
	u64 *count;

	if (!bpf_ringbuf_output(&starts, told, bytes, 0))
		return 0;
	count = bpf_map_lookup_elem(&lost, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

/* Arguments: struct task_struct *task, pid_t old_pid, struct linux_binprm *binprm */
SEC("tp_btf/sched_process_exec")
int on_exec(u64 *ctx)
{
	struct told told = {.pid = bpf_get_current_pid_tgid() >> 32};

	return tell(&told, 8);
}

/* Arguments: struct cgroup *group, const char *path */
SEC("tp_btf/cgroup_mkdir")
int on_mkdir(u64 *ctx)
{
	struct told told = {};
	long bytes = bpf_probe_read_kernel_str(told.path, PATH_BYTES, (const char *)ctx[1]);

	told.path_bytes = bytes < 0 ? 0 : bytes;
	return tell(&told, sizeof(told));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
