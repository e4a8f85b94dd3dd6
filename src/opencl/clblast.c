#include "opencl/clblast.h"

#include <stdlib.h>
#include <string.h>

#include "core/outside.h"
#include "opencl/devices.h"

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112, SIZE = sizeof(float) };

static struct { clblast_sgemm *sgemm; } api;
static const char *const names[] = {"libclblast.so.1", NULL};
static const tigon_symbol symbols[] = {{"CLBlastSgemm", 0}};
static tigon_outside library = {
    .names = names, .symbols = symbols, .count = 1, .api = &api, .lock = PTHREAD_MUTEX_INITIALIZER};

tigon_status opencl_choose_gemm(opencl_device *d, const char **reason) {
  const char *name = getenv("TIGON_GEMM");
  const bool asked = name && strcmp(name, "clblast") == 0, left_out = name && strcmp(name, "builtin") == 0;
  const bool wanted = asked || !(left_out || opencl_is_cpu(d->cl, d->device));
  if (wanted && tigon_outside_api(&library)) d->sgemm = api.sgemm;
  if (!asked || d->sgemm) return TIGON_OK;
  return *reason = "TIGON_GEMM is \"clblast\", and libclblast.so.1 is not found", TIGON_ERROR_DEVICE;
}

/* The pitch of a single row may be anything. */
static bool fits(int64_t pitch, int64_t rows, int64_t cols) { return rows == 1 || pitch >= cols; }
static size_t pitch_of(int64_t pitch, int64_t cols) { return (size_t)(pitch > cols ? pitch : cols); }

static bool takes_matrix(const gemm_matrix *x, int64_t rows, int64_t cols) {
  return x->dtype == TIGON_F32 && (x->transposed ? fits(x->pitch, cols, rows) : fits(x->pitch, rows, cols));
}

/* Memory that the host shares has no handle. */
static bool find(tigon_queue *queue, const void *address, opencl_place *place) {
  if (queue->record) return true;
  return opencl_look_up(queue, address, place) == TIGON_OK && place->buffer && place->offset % SIZE == 0;
}

bool opencl_clblast_takes(tigon_queue *queue, const void *a, const void *b, const void *c, const gemm_numbers *k,
                          clblast_places *at) {
  const bool fit = takes_matrix(&k->a, k->m, k->k) && takes_matrix(&k->b, k->k, k->n) && k->c_dtype == TIGON_F32 &&
                   fits(k->c_pitch, k->m, k->n);
  return opencl_of(queue)->sgemm && k->m > 0 && k->n > 0 && k->k > 0 && fit && find(queue, a, &at->a) &&
         find(queue, b, &at->b) && find(queue, c, &at->c);
}

tigon_status opencl_clblast_run(tigon_queue *queue, const clblast_places *at, bool adds, const gemm_numbers *k) {
  opencl_device *d = opencl_of(queue);
  if (queue->record) {
    queue->record(queue->record_to, &(tigon_launch){.kernel = "CLBlastSgemm", .grid = 1, .block = 1, .cluster = 1});
    return TIGON_OK;
  }
  const int turn_a = k->a.transposed ? TRANSPOSE : NO_TRANSPOSE, turn_b = k->b.transposed ? TRANSPOSE : NO_TRANSPOSE;
  const int code = d->sgemm(ROW_MAJOR, turn_a, turn_b, (size_t)k->m, (size_t)k->n, (size_t)k->k, 1, at->a.buffer,
                            at->a.offset / SIZE, pitch_of(k->a.pitch, k->a.transposed ? k->m : k->k), at->b.buffer,
                            at->b.offset / SIZE, pitch_of(k->b.pitch, k->b.transposed ? k->k : k->n), adds ? 1 : 0,
                            at->c.buffer, at->c.offset / SIZE, pitch_of(k->c_pitch, k->n), &d->stream, NULL);
  return opencl_check(queue, code, "CLBlastSgemm");
}
