// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sensor: how long each CPU ran idle, side, main and neutral tasks, to the nanosecond.
 *
 * At every context switch the time since the last one is added to the class that was running.
 * Userspace maps the slots and reads them without a system call (src/sense/slots.rs).
 *
 * A slot has one writer at a time: its own CPU, with preemption off. `on_switch` runs with
 * interrupts off as well, and `look` comes in by an interrupt that only the sensor's owner sends,
 * so the two never interleave.
 *
 * Consistency needs no lock, no sequence count and no barrier: in every complete state
 *
 *	ran_ns[0] + ran_ns[1] + ran_ns[2] + ran_ns[3] == (word >> 2) - base_ns
 *
 * and time and class share the one word. A reader that finds the sum off has met a switch half
 * written, on whatever memory model, and reads again.
 */
#include "kernel.h"

enum class {
	NEUTRAL = 0,
	SIDE = 1,
	MAIN = 2,
	IDLE = 3,
	CLASSES = 4,
};

/* Deeper groups count as neutral. A Kubernetes container is five levels down. */
#define LEVELS_MAX 16

/* Two cache lines, the first of them hot. */
struct slot {
	u64 word; /* time of the last switch (62 bits), class that runs since (2 bits); 0: unknown
		   */
	u64 base_ns;
	u64 ran_ns[CLASSES];
	u64 pid; /* who runs since, as far as was seen */
	u64 switches;
	u64 lookups;	 /* of a group not met before */
	u64 hidden;	 /* times that another task than `pid` turned out to run */
	u64 hidden_idle; /* of those, times that `pid` was the idle task */
	u64 unused[5];
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader sets the number of possible CPUs */
	MAP_UINT(map_flags, MAP_FLAG_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct slot);
} slots SEC(".maps");

/* cgroup id of a root of side or main work -> its class */
struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 8192);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u32);
} roots SEC(".maps");

/* Shared with userspace: one mapped element, see Control in src/sense/slots.rs. */
struct control {
	u64 generation; /* raised by userspace after each change of the roots */
	u64 moves;	/* raised here whenever a task changes its cgroup */
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, MAP_FLAG_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct control);
} control SEC(".maps");

/*
 * The classes of groups met before, shared by all CPUs: 8192 buckets of two words,
 *
 *	63            24 23           2 1     0
 *	[ serial number | generation   | class ]
 *
 * A serial number is never given twice, so a word cannot speak for another group; a change of the
 * roots raises the generation, so it cannot speak for the past. Each word is whole in itself and
 * stored at once, so CPUs that race can cost each other a look-up, never a wrong answer. Without
 * this, a CPU that goes round 500 groups five levels down spends 700 ns a switch climbing them.
 */
#define SEEN_BITS 13

struct seen {
	u64 words[2 << SEEN_BITS];
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct seen);
} seen SEC(".maps");

/* The nearest root above decides, so a main gate inside side's tree stays main. */
static __attribute__((noinline)) u32 walk(struct cgroup_subsys_state *css)
{
	for (int level = 0; level < LEVELS_MAX && css; level++) {
		u64 id = css->cgroup->kn->id;
		u32 *class = bpf_map_lookup_elem(&roots, &id);

		if (class)
			return *class & 3;
		css = css->parent;
	}
	return NEUTRAL;
}

static __attribute__((noinline)) u32 learn(struct cgroup_subsys_state *css, u64 *bucket, u64 tag)
{
	u32 class = walk(css);

	bucket[1] = bucket[0];
	bucket[0] = tag << 2 | class;
	return class;
}

INLINE u32 class_of(struct task_struct *task, struct slot *slot, u64 generation)
{
	struct cgroup_subsys_state *css;
	struct seen *all;
	u64 serial, tag, word, *bucket;
	u32 zero = 0;

	if (task->pid == 0)
		return IDLE;
	all = bpf_map_lookup_elem(&seen, &zero);
	if (!all)
		return NEUTRAL;
	css = &task->sched_task_group->css;
	serial = css->serial_nr;
	tag = serial << 22 | (generation & 0x3fffff);
	/* Fibonacci hashing: neighbours in serial number land far apart. */
	bucket = &all->words[2 * ((serial * 0x9e3779b97f4a7c15ULL) >> (64 - SEEN_BITS))];
	/* Each word is read once: another CPU may write it between two reads. */
	word = *(volatile u64 *)&bucket[0];
	if (word >> 2 != tag)
		word = *(volatile u64 *)&bucket[1];
	if (word >> 2 == tag)
		return word & 3;
	slot->lookups++;
	return learn(css, bucket, tag);
}

/* Close what ran until now and begin `class`. The clock may step back by a hair: never go along. */
INLINE void turn(struct slot *slot, u32 ran, u32 class)
{
	u64 now = bpf_ktime_get_ns();
	u64 since = slot->word >> 2;

	if (slot->word == 0) {
		slot->base_ns = now;
		slot->word = now << 2 | class;
		return;
	}
	if (now < since)
		now = since;
	slot->ran_ns[ran & 3] += now - since;
	slot->word = now << 2 | class;
}

/*
 * The class to charge for the time since the last switch: the one that began then, unless `task`
 * turns out to be another task than the one that began. A kernel may hide switches from its
 * tracepoint (6.18 of one cloud does, for switches away from the tasks of its own init, several
 * times a second). What was hidden is mostly the end of a short visit, so the time goes to the
 * task that is really there.
 */
INLINE u32 ran_class(struct task_struct *task, struct slot *slot, u64 generation)
{
	u32 ran = slot->word & 3;

	if (slot->pid == task->pid || slot->word == 0)
		return ran;
	slot->hidden++;
	if (ran == IDLE)
		slot->hidden_idle++;
	return class_of(task, slot, generation);
}

INLINE int change(struct task_struct *from, struct task_struct *to, bool is_switch)
{
	u32 cpu = bpf_get_smp_processor_id();
	u32 zero = 0, ran, class;
	struct slot *slot = bpf_map_lookup_elem(&slots, &cpu);
	struct control *shared = bpf_map_lookup_elem(&control, &zero);

	if (!slot || !shared)
		return 0;
	ran = ran_class(from, slot, shared->generation);
	class = class_of(to, slot, shared->generation);
	turn(slot, ran, class);
	slot->pid = to->pid;
	slot->switches += is_switch;
	return 0;
}

/* Arguments: bool preempt, struct task_struct *prev, struct task_struct *next, ... */
SEC("tp_btf/sched_switch")
int on_switch(u64 *ctx)
{
	return change((struct task_struct *)ctx[1], (struct task_struct *)ctx[2], 1);
}

/*
 * Look again at what runs here. Userspace runs this on a chosen CPU (BPF_PROG_TEST_RUN with
 * BPF_F_TEST_RUN_ON_CPU) at the start and where a task may have changed groups without a switch.
 */
SEC("raw_tp")
int look(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return change(task, task, 0);
}

SEC("tp_btf/cgroup_attach_task")
int on_move(u64 *ctx)
{
	u32 zero = 0;
	struct control *shared = bpf_map_lookup_elem(&control, &zero);

	if (shared)
		__sync_fetch_and_add(&shared->moves, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
