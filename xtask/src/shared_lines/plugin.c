// SPDX-License-Identifier: MIT OR Apache-2.0
// A plugin of the emulator (QEMU 7.2, API 1) that counts which cache lines the guest's kernel moves between CPUs, as if every
// CPU had a cache without end, and what instructions it executes. Counting begins and ends at marks: an instruction without
// effect that guest.c executes. `-plugin plugin.so,out=FILE`; docs in mod.rs.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Debian ships no header: what follows is of QEMU's include/qemu/qemu-plugin.h, as far as it is used.
typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
enum { NO_REGS = 0, MEM_RW = 3, INLINE_ADD_U64 = 0 };
typedef void (*plugin_cb)(qemu_plugin_id_t);
typedef void (*translated_cb)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*executed_cb)(unsigned int cpu, void *data);
typedef void (*accessed_cb)(unsigned int cpu, qemu_plugin_meminfo_t, uint64_t address, void *data);
void qemu_plugin_reset(qemu_plugin_id_t, plugin_cb);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, translated_cb);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int op, void *, uint64_t);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, executed_cb, int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, accessed_cb, int, int rw, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t, uint64_t);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 1;

#define LINES (1u << 24) // of 64 bytes: 1 GiB, more than the guest has
#define MOVES (1u << 20) // a power of two, many times the places that move lines
#define BLOCKS_MAX (1u << 20)

// nopl 0x74696465(%rax,%rax,1)
static const uint8_t MARK[8] = {0x0f, 0x1f, 0x84, 0x00, 0x65, 0x64, 0x69, 0x74};

static struct line {
	uint16_t holders; // a bit for each CPU that has it
	bool
	    written; // by any CPU since counting began: what was never written does not move, it is copied once
} *lines;

static struct move {
	uint64_t pc, line;
	uint64_t reads, writes;
} *moves;

static struct block {
	uint64_t pc, instructions, executed;
} *blocks;

static unsigned blocks_used;
static bool instrumenting, counting;
static unsigned intervals;
static FILE *out;
static qemu_plugin_id_t self;

static void moved(uint64_t pc, uint64_t line, bool is_write)
{
	uint64_t at = (pc * 0x9e3779b97f4a7c15u ^ line * 0xc2b2ae3d27d4eb4fu) >> 20;
	struct move *m;

	for (unsigned tries = 0; tries < MOVES; tries++, at++) {
		m = &moves[at % MOVES];
		if (!m->pc || (m->pc == pc && m->line == line))
			break;
	}
	m->pc = pc;
	m->line = line;
	m->reads += !is_write;
	m->writes += is_write;
}

static void accessed(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	bool is_write = qemu_plugin_mem_is_store(info);
	struct qemu_plugin_hwaddr *hw;
	uint16_t me = 1u << cpu;
	struct line *line;
	uint64_t at;

	if (!counting)
		return;
	hw = qemu_plugin_get_hwaddr(info, address);
	if (!hw || qemu_plugin_hwaddr_is_io(hw))
		return;
	at = qemu_plugin_hwaddr_phys_addr(hw) >> 6;
	if (at >= LINES)
		return;
	line = &lines[at];
	if (is_write ? line->holders & ~me : line->written && !(line->holders & me))
		moved((uint64_t)data, address & ~63ul, is_write);
	line->holders = is_write ? me : line->holders | me;
	line->written |= is_write;
}

static void begin(void)
{
	for (unsigned i = 0; i < blocks_used; i++)
		blocks[i].executed = 0;
	memset(lines, 0, LINES * sizeof(*lines));
	memset(moves, 0, MOVES * sizeof(*moves));
}

static void end(void)
{
	fprintf(out, "interval %u\n", intervals++);
	for (unsigned i = 0; i < blocks_used; i++)
		if (blocks[i].executed)
			fprintf(out, "block %lx %lu %lu\n", blocks[i].pc, blocks[i].instructions,
				blocks[i].executed);
	for (unsigned i = 0; i < MOVES; i++)
		if (moves[i].pc)
			fprintf(out, "move %lx %lx %lu %lu\n", moves[i].pc, moves[i].line,
				moves[i].reads, moves[i].writes);
	fflush(out);
}

static void registered(qemu_plugin_id_t id);

// The first mark drops all translated code, so that the guest's code is translated again with callbacks: the boot before it
// runs at full speed. Later marks leave the code: QEMU 7.2 keeps pointers to the callbacks of dropped translations.
static void marked(unsigned int cpu, void *data)
{
	(void)cpu, (void)data;
	if (counting)
		end();
	else
		begin();
	counting = !counting;
	if (!instrumenting)
		qemu_plugin_reset(self, registered);
	instrumenting = true;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t many = qemu_plugin_tb_n_insns(tb);
	uint64_t pc = qemu_plugin_tb_vaddr(tb);
	bool is_kernel = pc >> 63;

	(void)id;
	if (is_kernel && instrumenting && blocks_used < BLOCKS_MAX) {
		struct block *block = &blocks[blocks_used++];

		*block = (struct block){pc, many, 0};
		qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &block->executed, 1);
	}
	for (size_t i = 0; i < many; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (is_kernel && instrumenting)
			qemu_plugin_register_vcpu_mem_cb(insn, accessed, NO_REGS, MEM_RW,
							 (void *)qemu_plugin_insn_vaddr(insn));
		else if (!is_kernel && qemu_plugin_insn_size(insn) == sizeof(MARK) &&
			 !memcmp(qemu_plugin_insn_data(insn), MARK, sizeof(MARK)))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, NO_REGS, NULL);
	}
}

static void registered(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4) || !(out = fopen(argv[0] + 4, "w")))
		return 1;
	lines = calloc(LINES, sizeof(*lines));
	moves = calloc(MOVES, sizeof(*moves));
	blocks = calloc(BLOCKS_MAX, sizeof(*blocks));
	self = id;
	registered(id);
	return !lines || !moves || !blocks;
}
