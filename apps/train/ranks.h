/* Data-parallel processes over MPI: what they add up and agree on. Without mpirun, and in a build without MPI, there is one
 * rank and every call is a plain copy. */
#ifndef TRAIN_RANKS_H
#define TRAIN_RANKS_H

#include "memory.h"

typedef struct train_ranks {
  int rank, count;
  bool started; /* MPI runs */
} train_ranks;

/* Whether mpirun's environment says that this process is not the first: it leaves talking to that one. Before the start. */
bool train_ranks_silent(void);

/* Starts MPI when mpirun (or its like) started this process. A build without MPI refuses to be one of several. */
bool train_ranks_start(train_ranks *ranks, train_error *error);
/* The orderly end, by every rank. */
void train_ranks_stop(train_ranks *ranks);
/* Ends every rank, because this one failed alone. Does nothing on a single rank. */
void train_ranks_abort(train_ranks *ranks, int exit_code);

/* Adds up device memory over the ranks, in place, with the same bits on every rank. Element by element the values of rank 0, 1,
 * ... are added in this order in double, and rounded once to f32. `stage` is made on the first call. */
bool train_ranks_sum(const train_ranks *ranks, train_memory *memory, float *values, int64_t count, train_block *stage,
                     train_error *error);

/* all[r * count + i] is value i of rank r. */
bool train_ranks_gather(const train_ranks *ranks, const double *values, int count, double *all, train_error *error);

#endif
