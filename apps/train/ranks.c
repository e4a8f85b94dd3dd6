#include "ranks.h"

#include <stdlib.h>
#include <string.h>

#if TIGON_WITH_MPI
#include <mpi.h>
#endif

/* The number of processes that mpirun started, as its environment says; 0: not started by one. */
static int launched(void) {
  static const char *const sizes[] = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS"};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const char *text = getenv(sizes[i]);
    if (text) return atoi(text);
  }
  return getenv("PMIX_RANK") ? 1 : 0;
}

bool train_ranks_silent(void) {
  static const char *const names[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    const char *text = getenv(names[i]);
    if (text) return atoi(text) != 0;
  }
  return false;
}

#if TIGON_WITH_MPI

enum { PIECE = 1 << 16 /* floats that a rank adds up at once */ };

static bool ok(int code, train_error *error) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (code == MPI_SUCCESS) return true;
  MPI_Error_string(code, text, &length);
  return train_fail(error, TRAIN_EXIT_TROUBLE, "MPI failed: %.200s", text);
}

bool train_ranks_start(train_ranks *ranks, train_error *error) {
  *ranks = (train_ranks){0, 1, false};
  if (launched() == 0) return true; /* MPI_Init() would cost a plain run time and may start a daemon */
  if (!ok(MPI_Init(NULL, NULL), error)) return false;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &ranks->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks->count);
  ranks->started = true;
  return true;
}

void train_ranks_stop(train_ranks *ranks) {
  if (ranks->started) MPI_Finalize();
  ranks->started = false;
}

void train_ranks_abort(train_ranks *ranks, int exit_code) {
  if (ranks->started && ranks->count > 1) MPI_Abort(MPI_COMM_WORLD, exit_code);
}

/* One chunk of count * PIECE floats: every rank adds up a piece of it and hands the sum to all. */
static bool sum_chunk(const train_ranks *ranks, float *chunk, float *parts, float *mine, train_error *error) {
  if (!ok(MPI_Alltoall(chunk, PIECE, MPI_FLOAT, parts, PIECE, MPI_FLOAT, MPI_COMM_WORLD), error)) return false;
  for (int64_t i = 0; i < PIECE; ++i) {
    double sum = 0;
    for (int r = 0; r < ranks->count; ++r) sum += (double)parts[(int64_t)r * PIECE + i];
    mine[i] = (float)sum;
  }
  return ok(MPI_Allgather(mine, PIECE, MPI_FLOAT, chunk, PIECE, MPI_FLOAT, MPI_COMM_WORLD), error);
}

bool train_ranks_sum(const train_ranks *ranks, train_memory *memory, float *values, int64_t count, train_block *stage,
                     train_error *error) {
  if (ranks->count == 1) return true;
  const int64_t width = (int64_t)ranks->count * PIECE;
  if (!stage->data &&
      !train_host_alloc(memory, (size_t)(2 * width + PIECE) * sizeof(float), "adding up gradients", stage, error))
    return false;
  float *chunk = stage->data, *parts = chunk + width, *mine = parts + width;
  for (int64_t first = 0; first < count; first += width) {
    const int64_t part = count - first < width ? count - first : width;
    const size_t bytes = (size_t)part * sizeof(float);
    memset(chunk + part, 0, (size_t)(width - part) * sizeof(float));
    if (!train_ok(memory->context, tigon_copy(memory->context, chunk, values + first, bytes), error) ||
        !sum_chunk(ranks, chunk, parts, mine, error) ||
        !train_ok(memory->context, tigon_copy(memory->context, values + first, chunk, bytes), error))
      return false;
  }
  return true;
}

bool train_ranks_gather(const train_ranks *ranks, const double *values, int count, double *all, train_error *error) {
  if (!ranks->started) memcpy(all, values, (size_t)count * sizeof *all);
  return !ranks->started || ok(MPI_Allgather(values, count, MPI_DOUBLE, all, count, MPI_DOUBLE, MPI_COMM_WORLD), error);
}

#else

bool train_ranks_start(train_ranks *ranks, train_error *error) {
  *ranks = (train_ranks){0, 1, false};
  const int count = launched();
  if (count <= 1) return true;
  ranks->rank = train_ranks_silent() ? 1 : 0;
  return train_fail(error, TRAIN_EXIT_USAGE, "mpirun started %d of this tigon, which was built without MPI", count);
}

void train_ranks_stop(train_ranks *ranks) { (void)ranks; }

void train_ranks_abort(train_ranks *ranks, int exit_code) { (void)ranks, (void)exit_code; }

bool train_ranks_sum(const train_ranks *ranks, train_memory *memory, float *values, int64_t count, train_block *stage,
                     train_error *error) {
  (void)ranks, (void)memory, (void)values, (void)count, (void)stage, (void)error;
  return true;
}

bool train_ranks_gather(const train_ranks *ranks, const double *values, int count, double *all, train_error *error) {
  (void)ranks, (void)error;
  memcpy(all, values, (size_t)count * sizeof *all);
  return true;
}

#endif
