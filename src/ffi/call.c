/* One call: the arguments become the fields of an argument struct, a context is taken, an error is raised. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/schema.h"
#include "ffi/ffi.h"

/* ---- errors ---- */

/* Raises tigon_last_error(NULL) as an error of this kind. */
static int raise_as(const char *kind) {
  void (*set)(const char *, const char *) = TVMFFIErrorSetRaisedFromCStr;
  *(void **)&set = tigon_ffi_function(*(void **)&set, "TVMFFIErrorSetRaisedFromCStr");
  if (set) set(kind, tigon_last_error(NULL));
  return -1;
}

#define REFUSE(kind, ...) (tigon_fail(NULL, TIGON_ERROR_INVALID, __VA_ARGS__), raise_as(kind))

static int raise_status(tigon_status status) {
  switch (status) {
    /* A wrong dtype has no status of its own. */
    case TIGON_ERROR_INVALID: return raise_as(strstr(tigon_last_error(NULL), "dtype is ") ? "TypeError" : "ValueError");
    case TIGON_ERROR_WORKSPACE:
    case TIGON_ERROR_ALIAS: return raise_as("ValueError");
    case TIGON_ERROR_UNSUPPORTED: return raise_as("NotImplementedError");
    case TIGON_ERROR_OUT_OF_MEMORY: return raise_as("MemoryError");
    default: return raise_as("RuntimeError");
  }
}

/* ---- one argument ---- */

typedef struct call {
  const tigon_schema *schema;
  DLDevice device;
  const char *device_of; /* the tensor that `device` is of; NULL: none yet */
  char *elements;        /* elements of the list */
  int64_t count;
  const char *count_of; /* the argument that `count` is of; NULL: none yet */
} call;

static const char *type_name(int32_t type) {
  switch (type) {
    case FFI_INT: return "an int";
    case FFI_BOOL: return "a bool";
    case FFI_FLOAT: return "a float";
    case FFI_DLTENSOR:
    case FFI_TENSOR: return "a tensor";
    case FFI_RAW_STRING:
    case FFI_SMALL_STRING:
    case FFI_STRING: return "a string";
    case FFI_ARRAY:
    case FFI_LIST: return "a list";
    default: return "an object";
  }
}

static int wrong_type(const call *c, const tigon_field *field, const ffi_value *value, const char *must) {
  return REFUSE("TypeError", "%s: %s is %s, must be %s", c->schema->name, field->name, type_name(value->type), must);
}

/* All tensors of a call are on the device of the first. */
static int check_device(call *c, const tigon_field *field, DLDevice device) {
  if (device.device_type == kDLCPU || device.device_type == kDLCUDAHost) device = (DLDevice){kDLCPU, 0};
  if (device.device_type != kDLCPU && device.device_type != kDLCUDA && device.device_type != kDLOpenCL)
    return REFUSE("NotImplementedError", "%s: %s is on a device of DLPack's type %d, must be on cpu, cuda or opencl",
                  c->schema->name, field->name, (int)device.device_type);
  if (!c->device_of) {
    c->device = device;
    c->device_of = field->name;
  }
  char is[32], must[32];
  if (device.device_type != c->device.device_type || device.device_id != c->device.device_id)
    return REFUSE("ValueError", "%s: %s is on %s, must be on %s (%s)", c->schema->name, field->name,
                  tigon_ffi_device_name(device, is), tigon_ffi_device_name(c->device, must), c->device_of);
  return 0;
}

/* NULL with an error raised. */
static const DLTensor *tensor_of(call *c, const tigon_field *field, const ffi_value *value) {
  const DLTensor *view = NULL;
  if (value->type == FFI_DLTENSOR) view = value->pointer;
  if (value->type == FFI_TENSOR) view = &((const ffi_tensor *)value->pointer)->view;
  if (!view) wrong_type(c, field, value, "a tensor or None");
  return view && check_device(c, field, view->device) == 0 ? view : NULL;
}

static int set_tensor(call *c, const tigon_field *field, const ffi_value *value, tigon_tensor *to) {
  const DLTensor *view = tensor_of(c, field, value);
  if (!view) return -1;
  const tigon_status status = tigon_tensor_from_dlpack(view, to);
  if (status == TIGON_OK) return 0;
  char sentence[256];
  snprintf(sentence, sizeof sentence, "%s", tigon_last_error(NULL));
  tigon_fail(NULL, status, "%s: %s: %s", c->schema->name, field->name, sentence);
  return raise_status(status);
}

/* Any dtype, contiguous. Frameworks align to less than the 64 bytes that an op needs. So the call skips the bytes before the
 * first multiple of 64, and the query asks for that much more. */
enum { ALIGNMENT = 64 };

static int set_workspace(call *c, const tigon_field *field, const ffi_value *value, void **workspace, size_t *bytes) {
  const DLTensor *view = tensor_of(c, field, value);
  if (!view) return -1;
  int64_t count = 1, bits = (int64_t)view->dtype.bits * view->dtype.lanes;
  for (int i = view->ndim - 1; i >= 0; --i) {
    const int64_t extent = view->shape[i];
    if (view->strides && extent > 1 && view->strides[i] != count)
      return REFUSE("ValueError", "%s: %s.strides[%d] is %" PRId64 ", must be %" PRId64 " (contiguous)",
                    c->schema->name, field->name, i, view->strides[i], count);
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count) || __builtin_mul_overflow(bits, extent, &bits))
      return REFUSE("ValueError", "%s: %s.shape[%d] is %" PRId64 ", must be >= 0, with at most 2^63 bits in all",
                    c->schema->name, field->name, i, extent);
  }
  const uintptr_t begin = (uintptr_t)view->data + view->byte_offset;
  const size_t skipped = -begin % ALIGNMENT, size = (size_t)(bits / 8);
  if (view->data && size > skipped) {
    *workspace = (char *)view->data + view->byte_offset + skipped;
    *bytes = size - skipped;
  }
  return 0;
}

static int set_double(const call *c, const tigon_field *field, const ffi_value *value, double *to) {
  if (value->type != FFI_FLOAT && value->type != FFI_INT) return wrong_type(c, field, value, "a number or None");
  *to = value->type == FFI_FLOAT ? value->number : (double)value->integer;
  return 0;
}

static int set_int(const call *c, const tigon_field *field, const ffi_value *value, void *to) {
  if (value->type != FFI_INT && value->type != FFI_BOOL) return wrong_type(c, field, value, "an int, a bool or None");
  if (field->kind == TIGON_FIELD_INT64) {
    *(int64_t *)to = value->integer;
    return 0;
  }
  if (value->integer < INT32_MIN || value->integer > INT32_MAX)
    return REFUSE("ValueError", "%s: %s is %" PRId64 ", must fit 32 bits", c->schema->name, field->name,
                  value->integer);
  *(int32_t *)to = (int32_t)value->integer;
  return 0;
}

/* None leaves the field zero, which means absent, or the default. `base` is the argument struct or an element of its
 * list. */
static int set_field(call *c, const tigon_field *field, const ffi_value *value, char *base) {
  void *to = base + field->offset;
  if (value->type == FFI_NONE) return 0;
  switch (field->kind) {
    case TIGON_FIELD_TENSOR: return set_tensor(c, field, value, to);
    case TIGON_FIELD_WORKSPACE: return set_workspace(c, field, value, to, (size_t *)((char *)to + sizeof(void *)));
    case TIGON_FIELD_DOUBLE: return set_double(c, field, value, to);
    default: return set_int(c, field, value, to);
  }
}

/* ---- lists ---- */

/* A list gives each element its own; one tensor is a list of one; one number is every element's. */
static int set_each(call *c, const tigon_field *field, const ffi_value *value) {
  if (value->type == FFI_NONE) return 0;
  const bool listed = value->type == FFI_ARRAY || value->type == FFI_LIST;
  const ffi_sequence *list = value->pointer;
  const bool repeated = field->kind != TIGON_FIELD_TENSOR && c->count_of;
  const int64_t count = listed ? list->count : repeated ? c->count : 1;
  if (!c->count_of) {
    c->count = count;
    c->count_of = field->name;
    c->elements = calloc((size_t)count, c->schema->element_bytes);
    if (count && !c->elements)
      return raise_status(tigon_fail(NULL, TIGON_ERROR_OUT_OF_MEMORY, "%s: out of memory", c->schema->name));
  }
  if (count != c->count)
    return REFUSE("ValueError", "%s: %s has %" PRId64 " elements, must have %" PRId64 " (%s)", c->schema->name,
                  field->name, count, c->count, c->count_of);
  char *element = c->elements;
  for (int64_t i = 0; i < count; ++i, element += c->schema->element_bytes)
    if (set_field(c, field, listed ? &list->values[i] : value, element) != 0) return -1;
  return 0;
}

/* ---- the call ---- */

/* The fields that are arguments, in the order of the arguments: tensors, the workspace, numbers, a list's first. */
typedef struct arguments {
  int count;
  uint8_t fields[TIGON_MAX_FIELDS];
} arguments;

static arguments signatures[] = {
#define TIGON_SLOT(op, entry) {0},
#define TIGON_COMPOSITE(op, entry) {0},
#include "ops.def"
};

static size_t place_of(const tigon_field *field) {
  const size_t step = (size_t)1 << 20; /* beyond any offset */
  const bool each = field->flags & TIGON_FIELD_EACH;
  const size_t group = field->kind == TIGON_FIELD_TENSOR ? !each : field->kind == TIGON_FIELD_WORKSPACE ? 2 : 4 - each;
  return group * step + field->offset;
}

/* Before any call, because calls come from several threads. */
__attribute__((constructor)) static void sort_arguments(void) {
  const tigon_schema *schema;
  for (int entry = 0; (schema = tigon_schema_at(entry)); ++entry) {
    arguments *of = &signatures[entry];
    for (int i = 0; i < schema->count; ++i) {
      const tigon_field *field = &schema->fields[i];
      if (field->kind == TIGON_FIELD_LIST || field->kind >= TIGON_FIELD_RESERVED) continue;
      int at = of->count++;
      for (; at > 0 && place_of(&schema->fields[of->fields[at - 1]]) > place_of(field); --at)
        of->fields[at] = of->fields[at - 1];
      of->fields[at] = (uint8_t)i;
    }
  }
}

static int set_arguments(call *c, const arguments *known, char *args, const ffi_value *values, int32_t count) {
  const tigon_schema *s = c->schema;
  if (count > known->count)
    return REFUSE("TypeError", "%s: %d arguments are given, must be %d or less", s->name, count, known->count);
  for (int i = 0; i < count; ++i) {
    const tigon_field *field = &s->fields[known->fields[i]];
    const bool each = field->flags & TIGON_FIELD_EACH;
    if ((each ? set_each(c, field, &values[i]) : set_field(c, field, &values[i], args)) != 0) return -1;
  }
  if (s->element_bytes) {
    memcpy(args, &c->elements, sizeof c->elements);
    memcpy(args + sizeof c->elements, &c->count, sizeof c->count);
  }
  return 0;
}

static tigon_status run_on_device(const call *c, int entry, ffi_purpose purpose, const void *args, size_t *bytes) {
  tigon_context *taken;
  TIGON_TRY(tigon_ffi_context_take(c->device, &taken));
  const tigon_status status =
      purpose == FFI_CALL ? tigon_schema_call(entry, taken, args)
                          : tigon_schema_workspace(entry, taken, args, purpose == FFI_WORKSPACE_MINIMUM ? bytes : NULL,
                                                   purpose == FFI_WORKSPACE ? bytes : NULL);
  if (status != TIGON_OK) tigon_fail(NULL, status, "%s", tigon_last_error(taken));
  tigon_ffi_context_give(taken);
  return status;
}

int tigon_ffi_call(int entry, ffi_purpose purpose, const ffi_value *values, int32_t count, ffi_value *result) {
  call c = {.schema = tigon_schema_at(entry), .device = {kDLCPU, 0}};
  _Alignas(int64_t) char args[TIGON_MAX_ARGS_BYTES];
  size_t bytes = 0;
  tigon_status status = TIGON_OK;
  memset(args, 0, c.schema->bytes);
  int failed = set_arguments(&c, &signatures[entry], args, values, count);
  if (!failed) status = run_on_device(&c, entry, purpose, args, &bytes);
  free(c.elements);
  if (status != TIGON_OK) failed = raise_status(status);
  if (!failed && purpose != FFI_CALL)
    *result = (ffi_value){.type = FFI_INT, .integer = (int64_t)(bytes ? bytes + ALIGNMENT - 1 : 0)};
  return failed;
}
