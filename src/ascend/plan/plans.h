/* The plans of a device's calls. A launcher asks for its call's plan; check, bench and tests look at what was asked. */
#ifndef TIGON_ASCEND_PLAN_PLANS_H
#define TIGON_ASCEND_PLAN_PLANS_H

#include "ascend/plan/plan.h"
#include "backend.h"

/* Plans the call on the queue's device, for a launch. On a failure queue->reason is the planner's sentence. */
tigon_status ascend_plan(tigon_queue *queue, const tigon_plan_request *call, tigon_plan *plan);
/* The same for a call that has rows and columns only. */
tigon_status ascend_plan_rows(tigon_queue *queue, const char *op, const char *entry, tigon_dtype dtype, int64_t rows,
                              int64_t cols, tigon_plan *plan);
/* The workspace that a call's plan asks for, or minus a status. */
int64_t ascend_plan_workspace(tigon_queue *queue, const tigon_plan_request *call);
int64_t ascend_plan_rows_workspace(tigon_queue *queue, const char *op, const char *entry, tigon_dtype dtype,
                                   int64_t rows, int64_t cols);

/* A plan that was made: training asks for the same few again and again, and making one costs more than a tiny call. */
typedef struct ascend_planned {
  tigon_plan_request call; /* .op is NULL in a free place */
  tigon_plan plan;
} ascend_planned;

enum { ASCEND_PLANS = 64 }; /* places; three quarters of them are used */

struct ascend_plans {
  tigon_plan_case force; /* the check: a case that is taken wherever it fits */
  unsigned planned;      /* the check: cases that calls had so far, TIGON_CASE_BIT or-ed */
  int64_t predicted;     /* the bench: bytes that plans of calls so far said to move */
  int count;
  ascend_planned of[ASCEND_PLANS];
  char reason[sizeof((tigon_plan *)0)->reason]; /* reason of the last call that has no plan */
};

#endif
