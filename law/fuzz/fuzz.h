/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fuzz.h - what the libFuzzer harnesses share: reading an input, and a check.
 *
 * A harness takes its input apart into numbers and calls, drives the law with
 * them, and checks bounds and a small reference after every call. Sanitizers see
 * to the rest: signed and unsigned overflow, shifts, conversions, memory.
 * An input that ends early reads as zeros, so every prefix is an input too.
 */
#ifndef TG_FUZZ_H
#define TG_FUZZ_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base.h"

typedef __int128 tg_wide;

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "tidegate: fuzz: %s:%d: does not hold: %s\n", __FILE__,    \
				__LINE__, #what);                                                  \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct fuzz {
	const tg_u8 *at;
	size_t left;
};

static inline tg_u64 fuzz_take(struct fuzz *f, int bytes)
{
	tg_u64 value = 0;

	for (int i = 0; i < bytes && f->left > 0; i++) {
		value |= (tg_u64)*f->at << (8 * i);
		f->at++;
		f->left--;
	}
	return value;
}

/* 0..n-1, from one byte (n <= 256). */
static inline tg_u64 fuzz_below(struct fuzz *f, tg_u64 n)
{
	return fuzz_take(f, 1) % n;
}

/* low..high, from two bytes, in equal steps. */
static inline tg_u64 fuzz_between(struct fuzz *f, tg_u64 low, tg_u64 high)
{
	return low + (tg_u64)((tg_wide)(high - low) * fuzz_take(f, 2) / 65535);
}

/* Any magnitude: a byte for the size, then up to eight of value. */
static inline tg_u64 fuzz_any(struct fuzz *f)
{
	tg_u64 bits = fuzz_below(f, 65);
	tg_u64 value = fuzz_take(f, (int)((bits + 7) / 8));

	return bits == 0 ? 0 : bits == 64 ? value : value & (((tg_u64)1 << bits) - 1);
}

int LLVMFuzzerTestOneInput(const tg_u8 *data, size_t size);

#endif /* TG_FUZZ_H */
