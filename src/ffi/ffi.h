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

typedef enum ffi_kind {
  FFI_KIND_TENSOR,
  FFI_KIND_WORKSPACE, /* the field before `workspace_bytes` */
  FFI_KIND_DOUBLE,
  FFI_KIND_INT32, /* and enums */
  FFI_KIND_INT64,
} ffi_kind;

/* An argument: where its value goes in the entry's argument struct, or in each element of the struct's list. */
typedef struct ffi_field {
  const char *name;
  size_t offset;
  ffi_kind kind;
  bool each;
} ffi_field;

typedef struct ffi_signature {
  const char *entry;
  const ffi_field *fields; /* [count], in the order of the arguments */
  int count;
  size_t element_bytes; /* of the list that the argument struct begins with, as a pointer and a count; 0: none */
} ffi_signature;

/* An entry, or its query, which sets *bytes. */
typedef tigon_status ffi_run(tigon_context *context, const void *args, size_t *bytes);

/* Fills the zeroed `args` from `values`, calls `run`, and with `result` stores what the query said. 0, or -1 with an
 * error raised, whose sentence is also tigon_last_error(NULL). */
int tigon_ffi_call(const ffi_signature *signature, void *args, const ffi_value *values, int32_t count, ffi_run *run,
                   ffi_value *result);

/* A context for a device and the stream that the caller's framework has made current there. */
typedef struct ffi_context {
  DLDevice device;
  void *stream;
  tigon_context *context;
} ffi_context;

/* The sentence of an error is tigon_last_error(NULL). What was taken is for the taker alone until it is given back. */
tigon_status tigon_ffi_context_take(DLDevice device, ffi_context **taken);
void tigon_ffi_context_give(ffi_context *taken);

/* libtvm_ffi may have been loaded after this library; then the loader did not find `linked`, and finds it now. */
void *tigon_ffi_function(void *linked, const char *name);

#endif
