// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads the scenarios as `against_kernel export=` writes them: lab/sim/examples/against_kernel/export.rs
// tells the form. There every value is filled in and checked, so nothing has a default here.
#include "bed.h"

#include <stdio.h>
#include <string.h>

static FILE *source;
static char pending[256]; // the `scenario` line that ended the one before

static bool group_line(struct bed_scenario *s, const char *line)
{
	struct bed_group *group = &s->groups[s->group_count];

	if (s->group_count == GROUPS_MAX ||
	    sscanf(line, "group %31s %d %ld %ld %ld %ld %ld", group->name, &group->parent,
		   &group->weight, &group->idle, &group->quota_us, &group->period_us,
		   &group->burst_us) != 7 ||
	    group->parent >= s->group_count)
		return false;
	if (group->parent >= 0)
		s->groups[group->parent].inner = true;
	s->group_count++;
	return true;
}

static bool gate_line(struct bed_scenario *s, const char *line)
{
	return s->group_count &&
	       sscanf(line, "gate%127[^\n]", s->groups[s->group_count - 1].gate) == 1;
}

static bool task_line(struct bed_scenario *s, const char *line)
{
	struct bed_task *task = &s->tasks[s->task_count];

	if (s->task_count == TASKS_MAX ||
	    sscanf(line, "task %31s %d %ld %ld %ld %ld %ld", task->name, &task->group,
		   &task->policy, &task->nice, &task->slice_ns, &task->cpu_first,
		   &task->cpu_end) != 7 ||
	    task->group < 0 || task->group >= s->group_count)
		return false;
	s->task_count++;
	return true;
}

static bool kind_line(struct bed_scenario *s, const char *line)
{
	struct bed_task *task;

	if (!s->task_count)
		return false;
	task = &s->tasks[s->task_count - 1];
	if (sscanf(line, "hog %ld", &task->count) == 1) {
		task->kind = KIND_HOG;
		return true;
	}
	if (sscanf(line, "messages %ld %ld %ld", &task->count, &task->pairs, &task->loops) == 3) {
		task->kind = KIND_MESSAGES;
		return true;
	}
	task->kind = KIND_SLEEPER;
	task->count = 1;
	return sscanf(line, "sleeper %ld %ld %ld %ld", &task->period_ns, &task->run_ns,
		      &task->then_ns, &task->at_ns) == 4;
}

static bool read_line(struct bed_scenario *s, const char *line)
{
	static const char *const whats[] = {"share",   "periods", "throttled", "bursts",
					    "latency", "done",	  "duration"};
	struct bed_read *read = &s->reads[s->read_count];
	char what[16];

	if (s->read_count == READS_MAX ||
	    sscanf(line, "read %15s %31s %d %d", what, read->name, &read->group, &read->task) != 4)
		return false;
	for (int i = 0; i < 7; i++)
		if (!strcmp(what, whats[i])) {
			read->what = (enum bed_what)i;
			s->read_count++;
			return true;
		}
	return false;
}

bool bed_next(struct bed_scenario *s, const char *path)
{
	char line[256];

	if (!source) {
		source = fopen(path, "r");
		if (!source)
			die("open the scenarios", path);
		if (!fgets(pending, sizeof(pending), source))
			return false;
	}
	*s = (struct bed_scenario){0};
	if (!pending[0])
		return false;
	if (sscanf(pending, "scenario %31s %ld %ld %ld %ld %ld", s->name, &s->cpus, &s->warm_ns,
		   &s->span_ns, &s->silo_slice_us, &s->rewrite_ns) != 6)
		die("not a scenario's line", pending);
	pending[0] = 0;
	while (fgets(line, sizeof(line), source)) {
		if (!strncmp(line, "scenario ", 9)) {
			strcpy(pending, line);
			break;
		}
		if (!group_line(s, line) && !gate_line(s, line) && !task_line(s, line) &&
		    !read_line(s, line) && !kind_line(s, line))
			die("not understood, or too many of these", line);
	}
	return true;
}
