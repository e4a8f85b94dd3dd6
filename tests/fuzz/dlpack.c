/* DLPack tensors into an entry for TVM-FFI: a legal call whose tensors become DLTensors, of which some get odd fields. The entry
 * answers or raises an error. After an error nothing was written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "ffi/ffi.h"
#include "fuzz/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ARENA = 1 << 17, WORKSPACE = 1 << 15, VIEWS = 96, DIMS = 16 };
static char arena[ARENA] __attribute__((aligned(64))), before[ARENA];
static DLTensor views[VIEWS];
static int64_t shapes[VIEWS][DIMS], strides[VIEWS][DIMS];
static int used;

static int64_t odd_number(bytes *b) {
  static const int64_t odd[] = {0, -1, 1, 2, 3, 7, 64, INT32_MAX, INT64_MAX, INT64_MIN, INT64_MAX / 4, 1 << 20};
  const uint64_t pick = take(b, 1);
  return pick < 200 ? odd[pick % (sizeof odd / sizeof *odd)] : (int64_t)take(b, 8);
}

/* ---- a legal call as values ---- */

static ffi_value add_view(void *data, DLDataType dtype, int ndim, const int64_t *shape, const int64_t *stride) {
  DLTensor *v = &views[used];
  for (int d = 0; d < DIMS; ++d) {
    shapes[used][d] = d < ndim ? shape[d] : 1;
    strides[used][d] = d < ndim && stride ? stride[d] : 1;
  }
  *v = (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = dtype, .shape = shapes[used]};
  bool any = false;
  for (int d = 0; d < ndim && stride; ++d) any = any || stride[d];
  if (any) v->strides = strides[used];
  ++used;
  return (ffi_value){.type = FFI_DLTENSOR, .pointer = v};
}

static ffi_value tensor_value(const tigon_tensor *t) {
  static const DLDataType types[] = {[TIGON_F32] = {kDLFloat, 32, 1},
                                     [TIGON_F16] = {kDLFloat, 16, 1},
                                     [TIGON_BF16] = {kDLBfloat, 16, 1},
                                     [TIGON_I32] = {kDLInt, 32, 1},
                                     [TIGON_I64] = {kDLInt, 64, 1},
                                     [TIGON_I8] = {kDLInt, 8, 1},
                                     [TIGON_F8E4M3] = {kDLFloat8_e4m3fn, 8, 1}};
  if (t->ndim == 0 || used == VIEWS) return (ffi_value){.type = FFI_NONE};
  return add_view(t->data, types[t->dtype], t->ndim, t->shape, t->strides);
}

static ffi_value value_of(call *c, const tigon_field *field, int element) {
  const void *at = call_field(c, field, element);
  const int64_t shape[] = {WORKSPACE};
  switch (field->kind) {
    case TIGON_FIELD_TENSOR: return tensor_value(at);
    case TIGON_FIELD_WORKSPACE:
      return used < VIEWS ? add_view(arena + ARENA - WORKSPACE, (DLDataType){kDLInt, 8, 1}, 1, shape, NULL)
                          : (ffi_value){.type = FFI_NONE};
    case TIGON_FIELD_DOUBLE: return (ffi_value){.type = FFI_FLOAT, .number = *(const double *)at};
    case TIGON_FIELD_INT: return (ffi_value){.type = FFI_INT, .integer = *(const int *)at};
    default: return (ffi_value){.type = FFI_INT, .integer = *(const int64_t *)at};
  }
}

/* Arguments are tensors of a list, other tensors, the workspace, a list's numbers, other numbers; each group by offset. */
static int group_of(const tigon_field *field) {
  const bool each = field->flags & TIGON_FIELD_EACH;
  if (field->kind == TIGON_FIELD_LIST || field->kind >= TIGON_FIELD_RESERVED) return -1;
  return field->kind == TIGON_FIELD_TENSOR ? !each : field->kind == TIGON_FIELD_WORKSPACE ? 2 : 4 - each;
}

static const tigon_field *next_field(const tigon_schema *schema, int group, const tigon_field *after) {
  const tigon_field *next = NULL;
  for (const tigon_field *f = schema->fields; f < schema->fields + schema->count; ++f)
    if (group_of(f) == group && (!after || f->offset > after->offset) && (!next || f->offset < next->offset)) next = f;
  return next;
}

static int make_values(call *c, ffi_value values[VIEWS]) {
  static ffi_value elements[VIEWS][CALL_ELEMENTS];
  static ffi_sequence lists[VIEWS];
  int count = 0;
  for (int group = 0; group < 5; ++group)
    for (const tigon_field *f = NULL; (f = next_field(c->schema, group, f)) && count < VIEWS; ++count) {
      for (int i = 0; i < call_values(f); ++i) elements[count][i] = value_of(c, f, i);
      lists[count] = (ffi_sequence){.values = elements[count], .count = CALL_ELEMENTS};
      values[count] =
          call_values(f) == 1 ? elements[count][0] : (ffi_value){.type = FFI_LIST, .pointer = &lists[count]};
    }
  return count;
}

/* ---- odd fields ---- */

static void spoil_view(bytes *b) {
  static const uint8_t bits[] = {0, 1, 4, 8, 16, 32, 64, 128}, devices[] = {0, 1, 2, 3, 4, 7, 12, 255};
  DLTensor *v = &views[take(b, 1) % (uint64_t)used];
  const int d = (int)(take(b, 1) % 3);
  switch (take(b, 1) % 9) {
    case 0: v->data = NULL; break;
    case 1: v->data = arena + take(b, 3) % ARENA; break;
    case 2: v->device = (DLDevice){(DLDeviceType)devices[take(b, 1) % sizeof devices], (int32_t)odd_number(b)}; break;
    case 3: v->ndim = (int32_t)(take(b, 1) % (DIMS + 2)) - 1; break;
    case 4:
      v->dtype = (DLDataType){(uint8_t)take(b, 1), bits[take(b, 1) % sizeof bits], (uint16_t)(take(b, 1) % 3)};
      break;
    case 5: v->shape[d] = odd_number(b); break;
    case 6: v->strides = v->strides ? NULL : strides[v - views]; break;
    case 7: strides[v - views][d] = odd_number(b); break;
    default: v->byte_offset = (uint64_t)odd_number(b); break;
  }
}

static void spoil_value(bytes *b, ffi_value *values, int count) {
  static const int32_t types[] = {FFI_NONE, FFI_INT, FFI_BOOL, FFI_FLOAT, FFI_RAW_STRING, FFI_SMALL_STRING};
  ffi_value *value = &values[take(b, 1) % (uint64_t)count];
  *value = (ffi_value){.type = types[take(b, 1) % (sizeof types / sizeof *types)], .integer = odd_number(b)};
}

/* Describable, but not within the arena: the caller's fault, or rows without end. */
static bool leaves_arena(const DLTensor *v) {
  double reach = 1;
  bool empty = false, endless = false;
  for (int d = 0; d < v->ndim; ++d) {
    if (v->shape[d] < 0 || (v->strides && v->strides[d] < 0)) return false; /* refused */
    empty = empty || v->shape[d] == 0;
    endless = endless || v->shape[d] > ARENA;
    reach = v->strides ? reach + (double)(v->shape[d] - 1) * (double)v->strides[d] : reach * (double)v->shape[d];
  }
  const double begin = (double)((uintptr_t)v->data + v->byte_offset - (uintptr_t)arena);
  return empty ? endless : begin + reach * 16 > ARENA;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static int entries;
  if (!entries) {
    setenv("OCL_ICD_VENDORS", "/nowhere", 1); /* no driver of this machine's */
    while (tigon_schema_at(entries)) ++entries;
  }
  bytes b = {data, size};
  static call c;
  const tigon_dtype dtypes[] = {TIGON_F32, TIGON_F16, TIGON_BF16};
  const int entry = (int)(take(&b, 1) % (uint64_t)entries);
  const ffi_purpose purpose = (ffi_purpose)(take(&b, 1) % 8 > 1 ? FFI_CALL : FFI_WORKSPACE + data[0] % 2);
  call_choices how = {.dtype = dtypes[take(&b, 1) % 3],
                      .absent = take(&b, 4),
                      .wide = take(&b, 4),
                      .leading = 1,
                      .pad = (int64_t)(take(&b, 1) % 3),
                      .numbers = (uint32_t)take(&b, 2),
                      .gap = 64};
  static const char letters[] = "abstpkhdgncv1rf";
  static const int64_t extents[] = {2, 2, 2, 3, 7, 2, 4, 6, 3, 6, 35, 17, 1, 6, 3};
  for (int i = 0; letters[i]; ++i) how.extents[(int)letters[i]] = extents[i];
  memset(arena, 0, sizeof arena);
  if (!call_make(&c, entry, tigon_schema_at(entry), &how, arena, ARENA - WORKSPACE)) return 0;
  used = 0;
  ffi_value values[VIEWS];
  int count = make_values(&c, values);
  for (uint64_t spoils = take(&b, 1) % 4; spoils > 0 && used > 0; --spoils)
    take(&b, 1) % 4 ? spoil_view(&b) : spoil_value(&b, values, count);
  if (take(&b, 1) % 16 == 1) count = (int)(take(&b, 1) % VIEWS) < count ? count / 2 : count + (count < VIEWS);
  for (int i = 0; i < used; ++i)
    if (leaves_arena(&views[i])) return 0;
  memcpy(before, arena, sizeof arena);
  ffi_value result = {0};
  if (tigon_ffi_call(entry, purpose, values, count, &result) != 0) {
    if (!*tigon_last_error(NULL)) abort();
    if (memcmp(before, arena, sizeof arena) != 0) abort();
  }
  return 0;
}
