/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The headers of the law whose types, constants and functions bindgen gives to Rust (build.rs). */
#include "bandwidth.h"
#include "cap.h"
#include "delay.h"
#include "headroom.h"
#include "hweight.h"
#include "latency.h"
#include "runqueue.h"
#include "share.h"
#include "side_cpus.h"
#include "tuning.h"
