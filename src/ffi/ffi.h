/* The library's entries for TVM-FFI (https://tvm.apache.org/ffi), by which NumPy, JAX, CuPy, Paddle and others call
 * them. The value, object, tensor and sequence below have upstream's layout, and names of our own, so that nothing of
 * upstream's is needed to build; a test compares them. */
#ifndef TIGON_FFI_FFI_H
#define TIGON_FFI_FFI_H

#include <stdbool.h>

#include <tigon/tigon.h>

enum {
  FFI_NONE = 0,
  FFI_INT = 1,
  FFI_BOOL = 2,
  FFI_FLOAT = 3,
  FFI_DLTENSOR = 7, /* `pointer` is a DLTensor * */
  FFI_RAW_STRING = 8,
  FFI_SMALL_STRING = 11,
  FFI_STRING = 65,
  FFI_TENSOR = 70, /* an ffi_tensor */
  FFI_ARRAY = 71,  /* an ffi_sequence */
  FFI_LIST = 75,   /* an ffi_sequence */
};

typedef struct ffi_value {
  int32_t type;
  uint32_t padding;
  union {
    int64_t integer; /* and a bool's */
    double number;
    void *pointer;
  };
} ffi_value;

typedef struct ffi_object {
  uint64_t references;
  int32_t type;
  uint32_t padding;
  void (*deleter)(void *self, int flags);
} ffi_object;

typedef struct ffi_tensor {
  ffi_object object;
  DLTensor view;
} ffi_tensor;

typedef struct ffi_sequence {
  ffi_object object;
  const ffi_value *values;
  int64_t count;
} ffi_sequence;

/* libtvm_ffi's. NULL in a process that is without it. */
__attribute__((weak)) void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
__attribute__((weak)) void *TVMFFIEnvGetStream(int32_t device_type, int32_t device_id);

/* What a symbol does: it calls the entry, or asks for the workspace that it needs at most, or at least. */
typedef enum ffi_purpose { FFI_CALL, FFI_WORKSPACE, FFI_WORKSPACE_MINIMUM } ffi_purpose;

/* Calls the entry, whose index is tigon_schema_at()'s, or answers a query in *result. Its arguments are the fields of its
 * struct: tensors, the workspace, numbers. 0, or -1 with an error raised, whose sentence is also tigon_last_error(NULL). */
int tigon_ffi_call(int entry, ffi_purpose purpose, const ffi_value *values, int32_t count, ffi_value *result);

/* A context for a device, and the stream that the caller's framework has made current there. The sentence of an error is
 * tigon_last_error(NULL). What was taken is for the taker alone until it is given back. */
tigon_status tigon_ffi_context_take(DLDevice device, tigon_context **taken);
void tigon_ffi_context_give(tigon_context *taken);

/* "cpu", "cuda:1" */
const char *tigon_ffi_device_name(DLDevice device, char text[32]);

/* libtvm_ffi may have been loaded after this library; then the loader did not find `linked`, and finds it now. */
void *tigon_ffi_function(void *linked, const char *name);

#endif
