// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The sensor: how long each CPU ran idle, side, main and neutral tasks, to the nanosecond, and how
 * long main and neutral tasks waited before they ran.
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

/* Two clocks differ by less than this at a switch, so a shorter hidden visit is not detected. */
#define CLOCKS_NS 5000

/* Waits by length: 0 is below 1 us (1024 ns), n is from 2^(n+9) ns, the last is 8.6 s and more. */
#define WAIT_BUCKETS 24

/*
 * How long tasks of one class waited to run, one count for each time that one began to. Every
 * number only grows, and is of use by itself: a reader that meets one run half counted is off
 * by that run, once.
 */
struct waits {
	u64 runs;
	u64 late; /* of those, after more than `control.late_after_ns` */
	u64 wait_ns;
	u64 unknown; /* runs of tasks whose wait could not be told */
	u64 buckets[WAIT_BUCKETS];
};

/* The first two cache lines are hot, and of the waits one or two. */
struct slot {
	u64 word; /* time of the last switch (62 bits), class that runs since (2 bits); 0: unknown
		   */
	u64 base_ns;
	u64 ran_ns[CLASSES];
	u64 pid;	 /* who runs since, as far as was seen */
	u64 hidden;	 /* times that another task than `pid` turned out to run */
	u64 hidden_idle; /* of those, times that `pid` was the idle task */
	/* Turns that side work has while other work can run, if they are ended. */
	u64 waiting; /* not 0: side work runs and other work waits, or last_preempted() */
	u64 gave_way;
	u64 gave_way_ns; /* their length */
	u64 ended;	 /* times that one was interrupted */
	u64 unused[3];
	struct waits waits[2]; /* of neutral tasks, of main's */
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
	u64 generation;	   /* raised by userspace after each change of the roots */
	u64 moves;	   /* raised here whenever a task changes its cgroup */
	u64 late_after_ns; /* a longer wait than this is a late one */
	u64 ends_turns;	   /* side work is in the kernel's idle class, which userspace says */
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

/*
 * What each task's run delay was when it last left a CPU: 8192 words,
 *
 *	63                 22 21  0
 *	[ run delay, 73 min | pid ]
 *
 * by pid, the highest possible (2^22) in. Two tasks that share a word make each other's waits
 * unknown at times, never wrong.
 */
#define DELAY_BITS 13
#define PID_BITS 22
#define PID_MASK ((1ULL << PID_BITS) - 1)

struct seen {
	u64 words[2 << SEEN_BITS];
	u64 delays[1 << DELAY_BITS];
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

INLINE u32 class_of(struct task_struct *task, u64 generation)
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
	return learn(css, bucket, tag);
}

/*
 * Close what ran until now and begin `class`. What ran has done so for `run_ns` at most; before
 * that, `hidden` did. The clock may step back by a hair: never go along.
 */
INLINE void turn(struct slot *slot, u32 ran, u32 class, u64 run_ns, u32 hidden)
{
	u64 now = bpf_ktime_get_ns();
	u64 since = slot->word >> 2, stretch_ns;

	if (slot->word == 0) {
		slot->base_ns = now;
		slot->word = now << 2 | class;
		return;
	}
	if (now < since)
		now = since;
	stretch_ns = now - since;
	/* The kernel's clock is read at another moment than ours, and runs at another rate. */
	if (run_ns > stretch_ns || stretch_ns - run_ns < CLOCKS_NS + (stretch_ns >> 10))
		run_ns = stretch_ns;
	slot->ran_ns[hidden & 3] += stretch_ns - run_ns;
	slot->ran_ns[ran & 3] += run_ns;
	slot->word = now << 2 | class;
}

/*
 * The class of what runs: the one that began at the last switch, unless `task` turns out to be
 * another task than the one that began. A kernel may hide switches from its tracepoint. One cloud's
 * 6.18 does: the visits that it hid of an emulator's threads took 5 % of a CPU.
 */
INLINE u32 ran_class(struct task_struct *task, struct slot *slot, u64 generation)
{
	u32 ran = slot->word & 3;

	if (slot->pid == task->pid || slot->word == 0)
		return ran;
	slot->hidden++;
	if (ran == IDLE)
		slot->hidden_idle++;
	return class_of(task, generation);
}

/*
 * How long a task that leaves its CPU has run, by the kernel; ~0 where it does not say. Less than
 * the time since the last switch: another one was hidden.
 */
INLINE u64 run_of(struct task_struct *task)
{
	if (task->pid == 0 || !KERNEL_HAS(task->sched_info.last_arrival))
		return ~0ULL;
	return task->se.cfs_rq->rq->clock - task->sched_info.last_arrival;
}

/* floor(log2(x)) in five comparisons, for x < 2^32. */
INLINE u32 log2_of(u64 x)
{
	u32 log = 0;

	for (u32 half = 16; half; half >>= 1) {
		if (x >> half) {
			x >>= half;
			log += half;
		}
	}
	return log;
}

/*
 * How long `task`, which leaves its CPU now, had waited before it began to run; ~0 where that is
 * not known. The kernel adds each wait to the task's run delay as it ends (sched_info_arrive), and
 * the part before a migration as well, so the difference since the task last left a CPU is the
 * wait, wherever it was spent; no wakeup need be seen. A task on its first run began with none.
 */
INLINE u64 waited_ns(struct task_struct *task, struct seen *all)
{
	u64 total = task->sched_info.run_delay << PID_BITS;
	u64 pid = (u32)task->pid & PID_MASK;
	u64 *entry = &all->delays[pid & ((1 << DELAY_BITS) - 1)];
	u64 word = *(volatile u64 *)entry, gone;

	*(volatile u64 *)entry = total | pid;
	if (task->sched_info.pcount <= 1)
		return total >> PID_BITS;
	gone = (total - (word & ~PID_MASK)) >> PID_BITS;
	/* More than half of the range is a task of a pid that was given again. */
	if ((word & PID_MASK) != pid || gone >> (63 - PID_BITS))
		return ~0ULL;
	return gone;
}

/* Count the wait of a task that leaves the CPU and is neither idle nor side work. */
INLINE void count_wait(struct task_struct *task, struct waits *waits, u64 late_after_ns)
{
	struct seen *all;
	u32 zero = 0, log;
	u64 wait_ns;

	if (!KERNEL_HAS(task->sched_info.run_delay))
		return;
	all = bpf_map_lookup_elem(&seen, &zero);
	if (!all)
		return;
	wait_ns = waited_ns(task, all);
	if (wait_ns == ~0ULL) {
		waits->unknown++;
		return;
	}
	waits->runs++;
	if (wait_ns >> 10) {
		waits->wait_ns += wait_ns;
		waits->late += wait_ns > late_after_ns;
		log = wait_ns >> 32 ? WAIT_BUCKETS - 1 : log2_of(wait_ns) - 9;
		waits->buckets[log < WAIT_BUCKETS ? log : WAIT_BUCKETS - 1]++;
		return;
	}
	waits->wait_ns += wait_ns;
	waits->buckets[0]++;
}

/* Returns the class that ran. */
INLINE u32 change(struct slot *slot, struct control *shared, struct task_struct *from,
		  struct task_struct *to, bool is_switch)
{
	u64 run_ns = is_switch ? run_of(from) : ~0ULL;
	/* Who came and went unseen is in no gate, most likely. */
	u32 hidden = slot->pid == from->pid ? NEUTRAL : slot->word & 3;
	u32 ran = ran_class(from, slot, shared->generation);
	u32 class = class_of(to, shared->generation);

	turn(slot, ran, class, run_ns, hidden);
	/* NEUTRAL and MAIN are even. */
	if (is_switch && !(ran & 1))
		count_wait(from, &slot->waits[ran >> 1 & 1], shared->late_after_ns);
	slot->pid = to->pid;
	return ran;
}

INLINE int change_here(struct task_struct *from, struct task_struct *to, bool is_switch)
{
	u32 cpu = bpf_get_smp_processor_id(), zero = 0;
	struct slot *slot = bpf_map_lookup_elem(&slots, &cpu);
	struct control *shared = bpf_map_lookup_elem(&control, &zero);

	if (slot && shared)
		change(slot, shared, from, to, is_switch);
	return 0;
}

/*
 * Ending a turn that side work has while other work can run.
 *
 * EEVDF lets the idle group run as soon as a task of main is ahead of the queue's mean virtual time
 * by anything and its slice is over; only the next tick would end that turn (4 ms at HZ 250). But
 * side work's weight is 3, so after 20 us its own virtual time is far ahead, and any reschedule
 * returns the CPU to main. A kernel worker that is woken on this CPU preempts the idle class and
 * has nothing to do. It cannot be woken here, under the queue's lock: a timer does. Where side work
 * still runs then (a main of small weight), another follows, each after twice the time.
 */
#define TURN_NS 20000
#define TURN_TRIES 6
#define TIMER_CPU_PIN 2
#define CLOCK_MONOTONIC 1

struct turn {
	struct bpf_timer timer;
	struct bpf_wq work;
	u64 is_made;
	u64 is_watched;
	u64 tries;
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader sets the number of possible CPUs */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct turn);
} turns SEC(".maps");

/* Whether the kernel counts the tasks of a queue that can run (6.14 and later). */
#define COUNTS_WAITING KERNEL_HAS(((struct cfs_rq *)0)->h_nr_runnable)

/*
 * Whether tasks wait here that are neither idle class nor in the idle group of `task`, the task
 * that runs. Such a group's tasks count as idle class in the queues above it, and as their own
 * policy says within.
 */
INLINE bool other_work_waits(struct task_struct *task)
{
	struct sched_entity *entity = task->se.parent;
	struct cfs_rq *side = NULL;

	for (int level = 0; level < LEVELS_MAX && entity; level++) {
		struct cfs_rq *queue = entity->my_q;

		if (queue && queue->idle)
			side = queue;
		entity = entity->parent;
	}
	if (!side)
		return 0;
	return (int)(side->rq->cfs.h_nr_runnable - side->h_nr_runnable) >
	       (int)(side->rq->cfs.h_nr_idle - side->h_nr_queued);
}

static int no_work(void *map, int *key, void *value)
{
	return 0;
}

static int end_turn(void *map, u32 *cpu, struct turn *turn)
{
	u32 key = *cpu;
	struct slot *slot = bpf_map_lookup_elem(&slots, &key);
	bool is_over;

	if (!slot)
		return 0;
	is_over = (slot->word & 3) != SIDE || turn->tries == TURN_TRIES;
	if (COUNTS_WAITING)
		is_over = is_over || !other_work_waits(bpf_get_current_task_btf());
	/* After the last try, what waited runs elsewhere, or yields for another reason. */
	else if (turn->tries == TURN_TRIES)
		slot->waiting = 0;
	/* What waits behind other work now may stand behind side work later: that is a new turn. */
	if (is_over || !slot->waiting) {
		turn->is_watched = 0;
		return 0;
	}
	turn->tries++;
	slot->ended++;
	bpf_wq_start(&turn->work, 0);
	bpf_timer_start(&turn->timer, TURN_NS << turn->tries, TIMER_CPU_PIN);
	return 0;
}

INLINE int set_work(struct bpf_wq *work)
{
	/* The address of one that the kernel has not is 0, and the verifier leaves its call out. */
	if (bpf_wq_set_callback)
		return bpf_wq_set_callback(work, no_work, 0);
	return bpf_wq_set_callback_impl(work, no_work, 0, NULL);
}

INLINE void begin_turn(u32 cpu, struct slot *slot)
{
	struct turn *turn = bpf_map_lookup_elem(&turns, &cpu);

	if (!turn || turn->is_watched)
		return;
	if (!turn->is_made) {
		if (bpf_timer_init(&turn->timer, &turns, CLOCK_MONOTONIC) ||
		    bpf_timer_set_callback(&turn->timer, end_turn) ||
		    bpf_wq_init(&turn->work, &turns, 0) || set_work(&turn->work))
			return;
		turn->is_made = 1;
	}
	turn->tries = 0;
	turn->is_watched = 1;
	slot->gave_way++;
	bpf_timer_start(&turn->timer, TURN_NS, TIMER_CPU_PIN);
}

/*
 * Which task waits, on kernels that do not count them: the last that was preempted here. Others
 * that wait are missed, as one that was woken while another ran.
 */
INLINE u64 last_preempted(struct slot *slot, struct task_struct *prev, struct task_struct *next,
			  u32 ran, u32 prev_state)
{
	u64 waiting = slot->waiting;

	if ((slot->word & 3) == IDLE || next->pid == waiting)
		waiting = 0;
	/* NEUTRAL and MAIN are even; TASK_RUNNING is 0. */
	if (!(ran & 1) && !prev_state)
		waiting = prev->pid;
	return waiting;
}

/* Arguments: bool preempt, struct task_struct *prev, struct task_struct *next, unsigned prev_state */
SEC("tp_btf/sched_switch")
int on_switch(u64 *ctx)
{
	return change_here((struct task_struct *)ctx[1], (struct task_struct *)ctx[2], 1);
}

/* The same on kernels that have what ends turns (6.10 and later). */
SEC("tp_btf/sched_switch")
int on_switch_end_turns(u64 *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx[1];
	struct task_struct *next = (struct task_struct *)ctx[2];
	u32 cpu = bpf_get_smp_processor_id(), zero = 0, ran, class;
	struct slot *slot = bpf_map_lookup_elem(&slots, &cpu);
	struct control *shared = bpf_map_lookup_elem(&control, &zero);
	u64 side_ns;

	if (!slot || !shared)
		return 0;
	side_ns = slot->ran_ns[SIDE];
	ran = change(slot, shared, prev, next, 1);
	class = slot->word & 3;
	if (slot->waiting)
		slot->gave_way_ns += slot->ran_ns[SIDE] - side_ns;
	slot->waiting = COUNTS_WAITING ? class == SIDE && other_work_waits(next)
				       : last_preempted(slot, prev, next, ran, ctx[3]);
	if (class == SIDE && slot->waiting && shared->ends_turns)
		begin_turn(cpu, slot);
	return 0;
}

/*
 * Look again at what runs here. Userspace runs this on a chosen CPU (BPF_PROG_TEST_RUN with
 * BPF_F_TEST_RUN_ON_CPU) at the start and where a task may have changed groups without a switch.
 */
SEC("raw_tp")
int look(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return change_here(task, task, 0);
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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
