// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads scenarios.txt, whose head tells its form.
#include "bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *source;
static char pending[512]; // the `scenario` line that ended the one before
static int line_number;

static _Noreturn void refuse(const char *why, const char *word)
{
	char text[256];

	snprintf(text, sizeof(text), "line %d: %s '%s'", line_number, why, word ? word : "");
	die("scenarios", text);
}

static long number(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end == text || *end)
		refuse("not a number:", text);
	return value;
}

static void copy_name(char *to, const char *from)
{
	if (!from || strlen(from) >= NAME_MAX_BYTES)
		refuse("no name, or one too long:", from);
	strcpy(to, from);
}

int bed_group_index(const struct bed_scenario *s, const char *name)
{
	for (int i = 0; i < s->group_count; i++)
		if (!strcmp(s->groups[i].name, name))
			return i;
	return -1;
}

int bed_task_index(const struct bed_scenario *s, const char *name)
{
	for (int i = 0; i < s->task_count; i++)
		if (!strcmp(s->tasks[i].name, name))
			return i;
	return -1;
}

static int group_named(const struct bed_scenario *s, const char *name)
{
	int index = bed_group_index(s, name);

	if (index < 0)
		refuse("no such group:", name);
	return index;
}

static int choice(const char *value, const char *const *names, int count)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(value, names[i]))
			return i;
	refuse("not one of its values:", value);
}

// The next `key=value` of the line; false at its end.
static bool pair(char **key, char **value)
{
	*key = strtok(NULL, " \t\n");
	if (!*key)
		return false;
	*value = strchr(*key, '=');
	if (!*value)
		refuse("not key=value:", *key);
	*(*value)++ = 0;
	return true;
}

// What a group asks of the ext engine is handed through as it stands; the engine reads it.
static bool gate_word(struct bed_group *group, const char *key, const char *value)
{
	static const char *const terms[] = {"class",	"latency",  "headroom", "tolerance",
					    "cap_hard", "cap_soft", "cap_scope"};
	size_t used = strlen(group->gate);

	for (size_t i = 0; i < sizeof(terms) / sizeof(terms[0]); i++) {
		if (strcmp(key, terms[i]))
			continue;
		if (snprintf(group->gate + used, GATE_MAX_BYTES - used, " %s=%s", key, value) >=
		    (int)(GATE_MAX_BYTES - used))
			refuse("too many terms for a group:", value);
		return true;
	}
	return false;
}

static void read_group(struct bed_scenario *s)
{
	struct bed_group *group = &s->groups[s->group_count];
	char *key, *value;

	if (s->group_count == GROUPS_MAX)
		refuse("too many groups", NULL);
	*group = (struct bed_group){.parent = -1};
	copy_name(group->name, strtok(NULL, " \t\n"));
	while (pair(&key, &value)) {
		if (!strcmp(key, "parent")) {
			group->parent = group_named(s, value);
			s->groups[group->parent].inner = true;
		} else if (!strcmp(key, "weight"))
			group->weight = number(value);
		else if (!strcmp(key, "idle"))
			group->idle = number(value);
		else if (!strcmp(key, "quota_us"))
			group->quota_us = number(value);
		else if (!strcmp(key, "period_us"))
			group->period_us = number(value);
		else if (!strcmp(key, "burst_us"))
			group->burst_us = number(value);
		else if (!gate_word(group, key, value))
			refuse("a group has no", key);
	}
	s->group_count++;
}

static void task_word(struct bed_scenario *s, struct bed_task *task, const char *key,
		      const char *value)
{
	static const char *const kinds[] = {"hog", "sleeper", "stepper", "messages"};
	static const char *const policies[] = {"normal", "batch", "idle"};
	static const struct {
		const char *key;
		size_t at;
	} numbers[] = {
	    {"count", offsetof(struct bed_task, count)},
	    {"nice", offsetof(struct bed_task, nice)},
	    {"slice_us", offsetof(struct bed_task, slice_us)},
	    {"cpu", offsetof(struct bed_task, cpu)},
	    {"period_us", offsetof(struct bed_task, period_us)},
	    {"run_us", offsetof(struct bed_task, run_us)},
	    {"then_us", offsetof(struct bed_task, then_us)},
	    {"at_ms", offsetof(struct bed_task, at_ms)},
	    {"teams", offsetof(struct bed_task, teams)},
	    {"pairs", offsetof(struct bed_task, pairs)},
	    {"loops", offsetof(struct bed_task, loops)},
	};

	if (!strcmp(key, "group")) {
		task->group = group_named(s, value);
		return;
	}
	if (!strcmp(key, "kind")) {
		task->kind = (enum bed_kind)choice(value, kinds, 4);
		return;
	}
	if (!strcmp(key, "policy")) {
		task->policy = (enum bed_policy)choice(value, policies, 3);
		return;
	}
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!strcmp(key, numbers[i].key)) {
			*(long *)((char *)task + numbers[i].at) = number(value);
			return;
		}
	refuse("a task has no", key);
}

static void read_task(struct bed_scenario *s)
{
	struct bed_task *task = &s->tasks[s->task_count];
	char *key, *value;

	if (s->task_count == TASKS_MAX)
		refuse("too many tasks", NULL);
	*task = (struct bed_task){.group = -1, .count = 1, .cpu = -1};
	copy_name(task->name, strtok(NULL, " \t\n"));
	while (pair(&key, &value))
		task_word(s, task, key, value);
	if (task->group < 0)
		refuse("a task without a group:", task->name);
	s->task_count++;
}

static void read_read(struct bed_scenario *s)
{
	static const char *const whats[] = {"share",   "periods", "throttled", "bursts",
					    "latency", "done",	  "duration"};
	struct bed_read *read = &s->reads[s->read_count];
	char *what = strtok(NULL, " \t\n");

	if (s->read_count == READS_MAX)
		refuse("too many reads", NULL);
	read->what = (enum bed_what)choice(what ? what : "", whats, 7);
	copy_name(read->name, strtok(NULL, " \t\n"));
	if (bed_task_index(s, read->name) < 0)
		group_named(s, read->name);
	s->read_count++;
}

static void read_word(struct bed_scenario *s, const char *word)
{
	if (!strcmp(word, "what")) {
		return; // for the reader of the table
	} else if (!strcmp(word, "on")) {
		for (char *bed; (bed = strtok(NULL, " \t\n"));) {
			s->on_vm |= !strcmp(bed, "vm");
			s->on_host |= !strcmp(bed, "host");
			s->on_ext |= !strcmp(bed, "ext");
		}
	} else if (!strcmp(word, "group")) {
		read_group(s);
	} else if (!strcmp(word, "task")) {
		read_task(s);
	} else if (!strcmp(word, "read")) {
		read_read(s);
	} else if (!strcmp(word, "rewrite")) {
		char *key, *value, *name = strtok(NULL, " \t\n");

		s->rewrite_group = group_named(s, name ? name : "");
		if (!pair(&key, &value) || strcmp(key, "every_us"))
			refuse("rewrite wants every_us=", NULL);
		s->rewrite_us = number(value);
	} else {
		char *value = strtok(NULL, " \t\n");
		long *to = !strcmp(word, "cpus")	    ? &s->cpus
			   : !strcmp(word, "warm_ms")	    ? &s->warm_ms
			   : !strcmp(word, "span_ms")	    ? &s->span_ms
			   : !strcmp(word, "silo_slice_us") ? &s->silo_slice_us
							    : NULL;

		if (!to || !value)
			refuse("not understood:", word);
		*to = number(value);
	}
}

bool bed_next(struct bed_scenario *s, const char *path)
{
	char line[512];
	bool begun = false;

	if (!source && !(source = fopen(path, "r")))
		die("open the scenarios", path);
	*s = (struct bed_scenario){
	    .cpus = 1, .warm_ms = 500, .span_ms = 4000, .silo_slice_us = 5000, .rewrite_group = -1};
	for (;;) {
		char *word;

		if (pending[0]) {
			strcpy(line, pending);
			pending[0] = 0;
		} else {
			if (!fgets(line, sizeof(line), source))
				return begun;
			line_number++;
		}
		if (begun && !strncmp(line, "scenario ", 9)) {
			strcpy(pending, line);
			return true;
		}
		word = strtok(line, " \t\n");
		if (!word || word[0] == '#')
			continue;
		if (!strcmp(word, "scenario")) {
			copy_name(s->name, strtok(NULL, " \t\n"));
			begun = true;
		} else if (begun) {
			read_word(s, word);
		} else {
			refuse("before the first scenario:", word);
		}
	}
}
