/* Devices and contexts: where an op runs, on which stream, and its last error. */
#ifndef TIGON_CONTEXT_H
#define TIGON_CONTEXT_H

#include <tigon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A context binds a device, a variant, a stream and a last-error text. Use one per thread: two threads must not use a
 * context at the same time. Any number of contexts may run side by side. */
typedef struct tigon_context tigon_context;

typedef struct tigon_context_desc {
  const char *device;  /* "cpu", "npu:0", "ref" (the oracle), "cuda:0", "opencl:0", "ascend-sim:910B4" (simulated);
                          NULL: the first that is present, in the order cuda, npu, xpu, cpu. xpu is an Intel GPU
                          through OpenCL; other OpenCL devices are used only by name */
  const char *variant; /* "scalar", "avx2", "avx512", "avx512_bf16", "amx" on the CPU, "opencl-items", "opencl-groups"
                          with OpenCL; NULL: the environment's TIGON_CPU or TIGON_OPENCL, else the best one */
  void *stream;        /* the caller's: a CUstream, an aclrtStream, a cl_command_queue (in order); NULL: the context
                          makes one. Unused on the CPU */
  int threads;         /* CPU threads a call may use; 0: OMP_NUM_THREADS, else all cores. Results do not depend on it */
  uint64_t reserved[4];
} tigon_context_desc;

/* Makes a context. `desc` NULL means all defaults. On an error *context is NULL and tigon_last_error(NULL) says why.
 * INVALID: unknown device or variant, negative threads. DEVICE: the device is known, but absent. OUT_OF_MEMORY. */
TIGON_API tigon_status tigon_context_create(const tigon_context_desc *desc, tigon_context **context);
TIGON_API void tigon_context_destroy(tigon_context *context);

/* The sentence of the last failed call on this context, "" before the first. `context` NULL: the sentence of the last
 * call on this thread that failed without a context. It is valid until the next failing call. */
TIGON_API const char *tigon_last_error(const tigon_context *context);

/* The variant that ran the last op ("avx512"), "" before the first. Composites name the slot that they called last. */
TIGON_API const char *tigon_last_variant(const tigon_context *context);

/* "cpu", "ref", ...: the context's backend. */
TIGON_API const char *tigon_context_device(const tigon_context *context);

/* Waits until all work enqueued on the context's stream is done. If a device found a fault meanwhile (an out-of-range
 * label), it returns INVALID, once. On the CPU every op is done when it returns. */
TIGON_API tigon_status tigon_context_sync(tigon_context *context);

/* The GEMM behind linear on this context, and its determinism grades, as one sentence: "built-in: run_to_run,
 * thread_count, batch", or "openblas 0.3.21: run_to_run, thread_count (f32); built-in: all grades (bf16, f16)".
 * CPU: the environment's TIGON_GEMM = builtin | openblas | onednn chooses when the context is made. The default is
 *   openblas (for f32) if it is found at run time, with AVX-512 where the CPU has it, else builtin. onednn is for
 *   bf16, and much faster where the CPU has AMX. It allocates inside the op and may treat denormals as 0, so it runs
 *   only on request. The built-in GEMM runs what a library does not support.
 * NVIDIA GPU: cuBLASLt when it is found at run time. TIGON_GEMM = builtin asks for the built-in one.
 * OpenCL: CLBlast (for f32) on a GPU when it is found at run time. TIGON_GEMM = builtin | clblast chooses.
 * NPU: aclnn. Without it the context has no linear. */
TIGON_API const char *tigon_context_gemm(const tigon_context *context);

/* What products of `dtype` can do on the context's device by its maker's data sheet, without sparsity, in TFLOP/s. 0: not known,
 * as of a CPU, of f32, and of a GPU that src/cuda/gpus.def does not have. */
TIGON_API double tigon_context_tflops(const tigon_context *context, tigon_dtype dtype);

/* Device memory for tests, tools and trainers. Ops never allocate. It is 64-byte aligned. bytes = 0 gives NULL and OK. */
TIGON_API tigon_status tigon_alloc(tigon_context *context, size_t bytes, void **memory);
TIGON_API void tigon_free(tigon_context *context, void *memory);
/* Copies between host memory and this device's memory, in any direction and in stream order. It returns when it is done. */
TIGON_API tigon_status tigon_copy(tigon_context *context, void *to, const void *from, size_t bytes);
/* Sets bytes to `value`, in stream order. */
TIGON_API tigon_status tigon_fill(tigon_context *context, void *memory, int value, size_t bytes);

/* 1 when `op`'s `entry` ("rms_norm", "fwd") has a kernel for `dtype` on this context, else 0. */
TIGON_API int tigon_supports(const tigon_context *context, const char *op, const char *entry, tigon_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
