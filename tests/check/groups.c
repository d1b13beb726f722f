// SPDX-License-Identifier: MIT OR Apache-2.0
// Control groups of either version. All of a scenario's groups lie in one group of the bed's own,
// which has the highest weight: what else runs on the machine then takes little of the CPUs. It is
// named after the scenario, so that the groups of several may be there at once (for their gates).
#include "bed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BED "tidegate-check-"
#define BED_WEIGHT 10000
#define PATH_BYTES 512

static bool v2;
static char cpu_mount[128], acct_mount[128];

const char *groups_version(void)
{
	return v2 ? "v2" : "v1";
}

static bool has_option(const char *options, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = options; (at = strstr(at, name)); at += length)
		if ((at == options || at[-1] == ',') &&
		    (at[length] == ',' || at[length] == '\n' || !at[length]))
			return true;
	return false;
}

void groups_find(void)
{
	char line[1024], at[128], kind[32], options[512], unified[128] = "", path[PATH_BYTES];
	FILE *mounts = fopen("/proc/self/mounts", "r");

	if (!mounts)
		die("/proc/self/mounts", strerror(errno));
	while (fgets(line, sizeof(line), mounts)) {
		if (sscanf(line, "%*s %127s %31s %511s", at, kind, options) != 3)
			continue;
		if (!strcmp(kind, "cgroup") && has_option(options, "cpu"))
			strcpy(cpu_mount, at);
		if (!strcmp(kind, "cgroup") && has_option(options, "cpuacct"))
			strcpy(acct_mount, at);
		if (!strcmp(kind, "cgroup2"))
			strcpy(unified, at);
	}
	fclose(mounts);
	snprintf(path, sizeof(path), "%s/cgroup.controllers", unified);
	mounts = unified[0] ? fopen(path, "r") : NULL;
	if (mounts && fgets(line, sizeof(line), mounts) && strstr(line, "cpu"))
		v2 = true;
	if (mounts)
		fclose(mounts);
	if (v2) {
		strcpy(cpu_mount, unified);
		strcpy(acct_mount, unified);
	}
	if (!cpu_mount[0] || !acct_mount[0])
		die("control groups", "no cpu controller is mounted");
}

// The folder of a group (-1: the bed's own) below `mount`.
static void group_path(const struct bed_scenario *s, int group, const char *mount, char *path)
{
	int chain[GROUPS_MAX], depth = 0, used;

	for (; group >= 0; group = s->groups[group].parent)
		chain[depth++] = group;
	used = snprintf(path, PATH_BYTES, "%s/" BED "%s", mount, s->name);
	while (depth--)
		used += snprintf(path + used, PATH_BYTES - (size_t)used, "/%s",
				 s->groups[chain[depth]].name);
}

static bool try_write(const char *folder, const char *file, const char *text)
{
	char path[PATH_BYTES + 64];
	ssize_t done;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_WRONLY);
	if (fd < 0)
		return false;
	done = write(fd, text, strlen(text));
	close(fd);
	return done >= 0;
}

static void put(const char *folder, const char *file, const char *text)
{
	if (!try_write(folder, file, text)) {
		char where[PATH_BYTES + 128];

		snprintf(where, sizeof(where), "%s/%s: %s", folder, file, strerror(errno));
		die("write a group's file", where);
	}
}

static void put_number(const char *folder, const char *file, long value)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld", value);
	put(folder, file, text);
}

static void put_weight(const char *folder, long weight)
{
	if (v2)
		put_number(folder, "cpu.weight", weight);
	else // 100 is 1024 shares; the kernel rounds so on version 2
		put_number(folder, "cpu.shares", (weight * 1024 + 50) / 100);
}

static void write_quota(const struct bed_scenario *s, int index)
{
	const struct bed_group *group = &s->groups[index];
	char path[PATH_BYTES], text[64];

	group_path(s, index, cpu_mount, path);
	if (v2) {
		snprintf(text, sizeof(text), "%ld %ld", group->quota_us, group->period_us);
		put(path, "cpu.max", text);
	} else {
		put_number(path, "cpu.cfs_quota_us", group->quota_us);
	}
}

void groups_write_quotas(const struct bed_scenario *s)
{
	for (int i = 0; i < s->group_count; i++)
		if (s->groups[i].quota_us)
			write_quota(s, i);
}

static void make(const char *path)
{
	if (mkdir(path, 0755) && errno != EEXIST)
		die(path, strerror(errno));
}

void groups_make(const struct bed_scenario *s)
{
	char path[PATH_BYTES], acct[PATH_BYTES];

	if (v2)
		try_write(cpu_mount, "cgroup.subtree_control", "+cpu");
	for (int i = -1; i < s->group_count; i++) {
		const struct bed_group *group = i < 0 ? NULL : &s->groups[i];

		group_path(s, i, cpu_mount, path);
		group_path(s, i, acct_mount, acct);
		make(path);
		make(acct);
		if (v2 && (!group || group->inner))
			put(path, "cgroup.subtree_control", "+cpu");
		if (!group)
			put_weight(path, BED_WEIGHT);
		else if (group->idle)
			put_number(path, "cpu.idle", 1);
		else
			put_weight(path, group->weight);
		if (!group || !group->quota_us)
			continue;
		if (!v2)
			put_number(path, "cpu.cfs_period_us", group->period_us);
		write_quota(s, i);
		if (group->burst_us)
			put_number(path, v2 ? "cpu.max.burst" : "cpu.cfs_burst_us",
				   group->burst_us);
	}
}

void groups_print_gates(const struct bed_scenario *s)
{
	char path[PATH_BYTES];

	for (int i = 0; i < s->group_count; i++) {
		if (!s->groups[i].gate[0])
			continue;
		group_path(s, i, "cgroup:", path);
		printf("%s%s\n", path, s->groups[i].gate);
	}
}

void groups_remove(const struct bed_scenario *s)
{
	char path[PATH_BYTES];

	// The dead leave their group a little later than they are waited for.
	for (int i = s->group_count - 1; i >= -1; i--)
		for (int turn = 0; turn < 200; turn++) {
			bool gone;

			group_path(s, i, acct_mount, path);
			gone = !rmdir(path) || errno == ENOENT;
			group_path(s, i, cpu_mount, path);
			if ((!rmdir(path) || errno == ENOENT) && gone)
				break;
			usleep(5000);
		}
}

// The controller itself runs beside the bed, in the root: below a group of an ordinary weight it
// would wait for the bed's heavy one.
void groups_leave(void)
{
	put(cpu_mount, "cgroup.procs", "0");
	if (strcmp(cpu_mount, acct_mount))
		put(acct_mount, "cgroup.procs", "0");
}

void groups_enter(const struct bed_scenario *s, int group)
{
	char path[PATH_BYTES];

	group_path(s, group, cpu_mount, path);
	put(path, "cgroup.procs", "0");
	if (strcmp(cpu_mount, acct_mount)) {
		group_path(s, group, acct_mount, path);
		put(path, "cgroup.procs", "0");
	}
}

struct bed_stat groups_stat(const struct bed_scenario *s, int group)
{
	struct bed_stat stat = {0};
	char path[PATH_BYTES + 64], key[64];
	unsigned long long value;
	FILE *file;

	group_path(s, group, cpu_mount, path);
	strcat(path, "/cpu.stat");
	file = fopen(path, "r");
	if (!file)
		die(path, strerror(errno));
	while (fscanf(file, "%63s %llu", key, &value) == 2) {
		if (!strcmp(key, "usage_usec"))
			stat.usage_ns = value * 1000;
		else if (!strcmp(key, "nr_periods"))
			stat.periods = value;
		else if (!strcmp(key, "nr_throttled"))
			stat.throttled = value;
		else if (!strcmp(key, "nr_bursts"))
			stat.bursts = value;
	}
	fclose(file);
	if (v2)
		return stat;
	group_path(s, group, acct_mount, path);
	strcat(path, "/cpuacct.usage");
	file = fopen(path, "r");
	if (!file || fscanf(file, "%llu", &value) != 1)
		die(path, strerror(errno));
	fclose(file);
	stat.usage_ns = value;
	return stat;
}
