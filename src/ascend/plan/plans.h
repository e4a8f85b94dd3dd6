/* The plans of a device's calls. A launcher asks for its call's plan; check, bench and tests look at what was asked. */
#ifndef TIGON_ASCEND_PLAN_PLANS_H
#define TIGON_ASCEND_PLAN_PLANS_H

#include "ascend/plan/plan.h"
#include "backend.h"

/* What a call has a row besides its streams: 4-byte words, and a loss's totals. */
typedef struct ascend_row_words {
  uint8_t in, out, label;
  uint8_t totals; /* TIGON_TOTAL_ or-ed */
} ascend_row_words;

/* What a call asks the planner for. */
typedef struct ascend_plan_call {
  const char *op, *entry; /* literals: plans are found by their addresses */
  tigon_dtype dtype;
  int f32_temporaries; /* besides the footprint's */
  int64_t rows, cols;
  int64_t groups, run; /* 0, or case G: rows in `groups` with channel runs of `run` columns */
  int64_t out_rows;    /* embedding bwd: of the table */
  /* rope: a head's columns, half of those that turn, the keys' of all; tokens of a sequence; bytes of a table's element */
  int64_t col_unit, table_cols, key_cols, sequence;
  int row_table_bytes;
  const ascend_row_words *words; /* NULL: the footprint's */
} ascend_plan_call;

/* Plans the call on the queue's device, for a launch. On a failure queue->reason is the planner's sentence. */
tigon_status ascend_plan(tigon_queue *queue, const ascend_plan_call *call, tigon_plan *plan);
/* The same for an op's rows alone. */
tigon_status ascend_plan_rows(tigon_queue *queue, const char *op, const char *entry, tigon_dtype dtype, int64_t rows,
                              int64_t cols, tigon_plan *plan);
/* The workspace that a call's plan asks for, or minus a status. */
int64_t ascend_plan_workspace(tigon_queue *queue, const ascend_plan_call *call);

enum {
  ASCEND_PLANS = 64, /* places; three quarters of them are used */
  ASCEND_PLAN_KEY = 13,
};

/* A plan that was made: training asks for the same few again and again, and making one costs more than a tiny call. */
typedef struct ascend_planned {
  uint64_t key[ASCEND_PLAN_KEY]; /* plans.c; [0] is 0 in a free place */
  tigon_plan plan;
} ascend_planned;

struct ascend_plans {
  tigon_plan_case force; /* the check: a case that is taken wherever it fits */
  unsigned planned;      /* the check: cases that calls had so far, TIGON_CASE_BIT or-ed */
  int64_t predicted;     /* the bench: bytes that plans of calls so far said to move */
  int count;
  ascend_planned of[ASCEND_PLANS];
  char reason[sizeof((tigon_plan *)0)->reason]; /* of the last call that has no plan */
};

#endif
