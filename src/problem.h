/* What a front hands to a kernel: one small struct per slot, by family. A kernel includes the family that it needs. */
#ifndef TIGON_PROBLEM_H
#define TIGON_PROBLEM_H

#include "problem/attn_res.h"
#include "problem/columns.h"
#include "problem/heads.h"
#include "problem/lists.h"
#include "problem/loss.h"
#include "problem/map.h"
#include "problem/mhc.h"
#include "problem/moe.h"
#include "problem/multi_token_attention.h"
#include "problem/norm.h"
#include "problem/product.h"
#include "problem/rows.h"

#endif
