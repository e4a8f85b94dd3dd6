/* Devices and contexts: where an op runs, on which stream, and what it last had to say. */
#ifndef TIGON_CONTEXT_H
#define TIGON_CONTEXT_H

#include <tigon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A context binds a device, a variant, a stream and a last-error text. Use one per thread: a context is not shared
 * between threads at the same time; any number of contexts may run side by side. */
typedef struct tigon_context tigon_context;

typedef struct tigon_context_desc {
  const char *device;  /* "cpu", "npu:0", "ref" (the oracle), "cuda:0", "ascend-sim:910B4" (simulated); NULL: the
                          first one that is there, in the order cuda, npu, xpu, cpu. xpu is known, but not there: this
                          build has no Intel XPU backend */
  const char *variant; /* "scalar", "avx2", "avx512", "avx512_bf16" on the CPU; NULL: the environment's TIGON_CPU, else
                          the best one */
  void *stream;        /* the caller's own: a CUstream, an aclrtStream; NULL: one of its own. Unused on the CPU */
  int threads;         /* CPU threads a call may use; 0: OMP_NUM_THREADS, else all cores. Results do not depend on it */
  uint64_t reserved[4];
} tigon_context_desc;

/* Makes a context. `desc` NULL means all defaults. On an error *context is NULL and tigon_last_error(NULL) says why.
 * INVALID: unknown device or variant, negative threads. DEVICE: known, but not there. OUT_OF_MEMORY. */
TIGON_API tigon_status tigon_context_create(const tigon_context_desc *desc, tigon_context **context);
TIGON_API void tigon_context_destroy(tigon_context *context);

/* The sentence of the last call on this context that failed, "" before the first. NULL: of the last call on this thread
 * that failed without a context. Valid until the next failing call. */
TIGON_API const char *tigon_last_error(const tigon_context *context);

/* The variant that ran the last op ("avx512"), "" before the first; composites name the slot that they called last. */
TIGON_API const char *tigon_last_variant(const tigon_context *context);

/* "cpu", "ref", ...: the context's backend. */
TIGON_API const char *tigon_context_device(const tigon_context *context);

/* Waits until all work enqueued on the context's stream is done, and returns the fault that a device found meanwhile (an
 * out-of-range label) as INVALID, once. On the CPU every op is done when it returns. */
TIGON_API tigon_status tigon_context_sync(tigon_context *context);

/* The GEMM behind linear on this context, and its determinism grades, as one sentence: "built-in: run_to_run,
 * thread_count, batch", or "openblas 0.3.21: run_to_run, thread_count (f32); built-in: all grades (bf16, f16)". On the
 * CPU the environment's TIGON_GEMM = builtin | openblas | onednn chooses when the context is made; the default is
 * openblas (for f32) when it is found at run time, else builtin. onednn (for bf16, much faster where the CPU has AMX)
 * allocates inside the op and may take denormals for 0, so it runs only when asked for. What a library does not take,
 * the built-in one runs. On a GPU it is cuBLASLt when that is found at run time, and TIGON_GEMM = builtin asks for none;
 * on an NPU aclnn, without which linear is not there. */
TIGON_API const char *tigon_context_gemm(const tigon_context *context);

/* Device memory for tests, tools and trainers; ops never allocate. 64-byte aligned. bytes = 0 gives NULL and OK. */
TIGON_API tigon_status tigon_alloc(tigon_context *context, size_t bytes, void **memory);
TIGON_API void tigon_free(tigon_context *context, void *memory);
/* Copies between any two of host memory and this device's memory, in stream order; done when it returns. */
TIGON_API tigon_status tigon_copy(tigon_context *context, void *to, const void *from, size_t bytes);
/* Sets bytes to `value`, in stream order. */
TIGON_API tigon_status tigon_fill(tigon_context *context, void *memory, int value, size_t bytes);

/* 1 when `op`'s `entry` ("rms_norm", "fwd") has a kernel for `dtype` on this context, else 0. */
TIGON_API int tigon_supports(const tigon_context *context, const char *op, const char *entry, tigon_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
