/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * base.h - integer types and small arithmetic for the law.
 *
 * Everything under law/ compiles both natively and for BPF (clang -target bpf
 * -mcpu=v3): no libc, no floating point, no signed division (the v3
 * instruction set has none), no 128-bit products (they become a libcall), no
 * locks, no clock.
 *
 * Units are in the names: _ns and _us are CPU time or wall time, _ucpu is a
 * rate in millionths of one CPU, _ppm is a share of the domain.
 *
 * Ranges on which every "no overflow" below rests:
 *   CPUs    <= TG_CPUS_MAX = 8192            = 2^13
 *   dt_ns   <= TG_DT_MAX_NS = 10^10 (10 s)   < 2^34
 *   CPU time in a window <= 8192 * 10^10     = 8.192e13 < 2^47
 *   rate_ucpu <= 8192 * 10^6                 = 8.192e9  < 2^33
 */
#ifndef TG_LAW_BASE_H
#define TG_LAW_BASE_H

#ifdef __bpf__
/* A BPF program brings its own kernel types; only the law's names are ours. */
typedef unsigned char tg_u8;
typedef unsigned int tg_u32;
typedef unsigned long long tg_u64;
typedef long long tg_s64;
typedef int tg_s32;
#else
#include <stdint.h>
typedef uint8_t tg_u8;
typedef uint32_t tg_u32;
typedef uint64_t tg_u64;
typedef int64_t tg_s64;
typedef int32_t tg_s32;
#endif

#define TG_FN static inline __attribute__((always_inline, unused))

#define TG_CPUS_MAX 8192ULL
#define TG_DT_MAX_NS 10000000000ULL
#define TG_UCPU 1000000ULL
#define TG_PPM 1000000ULL
#define TG_UCPU_MAX (TG_CPUS_MAX * TG_UCPU)

/*
 * a < b ? yes : no. In BPF without a branch, by the borrow of a - b (Warren,
 * Hacker's Delight, 2-13): the verifier walks every path, and two for each
 * minimum are soon more than it may.
 */
TG_FN tg_u64 tg_if_less(tg_u64 a, tg_u64 b, tg_u64 yes, tg_u64 no)
{
#ifdef __bpf__
	tg_u64 borrow;

	/* What clang knows of a, or sees in the borrow, it makes a branch of. */
	__asm__("" : "+r"(a));
	borrow = ((~a & b) | (~(a ^ b) & (a - b))) >> 63;
	__asm__("" : "+r"(borrow));
	return no ^ ((yes ^ no) & (0 - borrow));
#else
	return a < b ? yes : no;
#endif
}

TG_FN tg_u64 tg_min(tg_u64 a, tg_u64 b)
{
	return tg_if_less(a, b, a, b);
}

TG_FN tg_u64 tg_max(tg_u64 a, tg_u64 b)
{
	return tg_if_less(a, b, b, a);
}

TG_FN tg_u64 tg_clamp(tg_u64 x, tg_u64 low, tg_u64 high)
{
	return tg_max(low, tg_min(x, high));
}

/* a - b, or 0 where that would be negative. */
TG_FN tg_u64 tg_sub0(tg_u64 a, tg_u64 b)
{
	return a - tg_min(a, b);
}

/* |x|; x is never the most negative value here (|x| < 2^50 wherever used). */
TG_FN tg_u64 tg_abs(tg_s64 x)
{
	return x < 0 ? (tg_u64)-x : (tg_u64)x;
}

TG_FN tg_s64 tg_min_s(tg_s64 a, tg_s64 b)
{
	return a < b ? a : b;
}

TG_FN tg_s64 tg_clamp_s(tg_s64 x, tg_s64 low, tg_s64 high)
{
	return x < low ? low : x > high ? high : x;
}

/*
 * CPU time over a window as a rate, rounded to nearest.
 * time_ns <= 8.192e13, times 10^5 = 8.192e18, plus half a divisor (5e8)
 * < 1.8e19. dt_ns >= 1000, so the divisor is >= 100; cutting dt to tens of ns
 * errs by under 10 / dt_ns: 2e-6 at 5 ms.
 */
TG_FN tg_u64 tg_rate_ucpu(tg_u64 time_ns, tg_u64 dt_ns)
{
	tg_u64 tens = dt_ns / 10;

	return tg_min((time_ns * 100000 + tens / 2) / tens, TG_UCPU_MAX);
}

/*
 * A rate over a window as CPU time: rate_ucpu * dt_ns / 10^6.
 * 8.192e9 * 10^9 = 8.192e18 < 1.8e19.
 */
TG_FN tg_u64 tg_time_ns(tg_u64 rate_ucpu, tg_u64 dt_ns)
{
	return rate_ucpu * (dt_ns / 10) / 100000;
}

/* ppm of a rate, rounded to nearest: 8.192e9 * 10^6 = 8.192e15. */
TG_FN tg_u64 tg_ppm_of(tg_u64 rate_ucpu, tg_u64 ppm)
{
	return (rate_ucpu * ppm + TG_PPM / 2) / TG_PPM;
}

/*
 * The weight of a window of dt_us in a mean over span_us, as a 16-bit
 * fraction: 10^7 * 65536 = 6.6e11. At most 1, at least 1/65536.
 */
TG_FN tg_u64 tg_weight_16(tg_u64 dt_us, tg_u64 span_us)
{
	if (dt_us >= span_us)
		return 65536;
	return tg_max(1, dt_us * 65536 / span_us);
}

/*
 * old + (now - old) * weight, rounded to nearest. The difference is < 2^43
 * (rates are kept in ncpu inside the law: 8.192e12), times 2^16 < 2^59.
 */
TG_FN tg_u64 tg_mean(tg_u64 old, tg_u64 now, tg_u64 weight_16)
{
	if (now >= old)
		return old + (((now - old) * weight_16 + 32768) >> 16);
	return old - (((old - now) * weight_16 + 32768) >> 16);
}

/* The same for a signed quantity. */
TG_FN tg_s64 tg_mean_s(tg_s64 old, tg_s64 now, tg_u64 weight_16)
{
	tg_s64 by = (tg_s64)((tg_abs(now - old) * weight_16 + 32768) >> 16);

	return now >= old ? old + by : old - by;
}

#endif /* TG_LAW_BASE_H */
