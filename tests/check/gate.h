/* What the checks of swiglu and geglu share: their tensors, packed or apart, in place or not. */
#ifndef TIGON_CHECK_GATE_H
#define TIGON_CHECK_GATE_H

#include "check/cases.h"

typedef struct gate_case {
  bool packed;
  int in_place; /* forward: 1 c is a, 2 c is b; backward: 1 da, db are a, b; 2 they are b, dc; 3 they are dc, a */
} gate_case;

/* Two [rows, cols] inputs, or the halves of one [rows, 2 * cols]. */
static inline void gate_and_up(check *k, bool packed, bool in_place, tigon_tensor *a, tigon_tensor *b) {
  const int64_t cols = k->dims[1], wide[] = {k->dims[0], 2 * cols};
  if (packed) {
    *a = in_place ? check_inout(k, "ab", k->dtype, 2, wide, k->fill) : check_in(k, "ab", k->dtype, 2, wide, k->fill);
    *b = *a;
    a->shape[1] = b->shape[1] = cols;
    b->data = (char *)a->data + (size_t)cols * tigon_dtype_size(k->dtype);
  } else {
    *a =
        in_place ? check_inout(k, "a", k->dtype, 2, k->dims, k->fill) : check_in(k, "a", k->dtype, 2, k->dims, k->fill);
    *b = in_place ? check_inout(k, "b", k->dtype, 2, k->dims, CHECK_UNIFORM)
                  : check_in(k, "b", k->dtype, 2, k->dims, CHECK_UNIFORM);
  }
}

/* The case's, in the form of a timed one. */
static inline gate_case gate_of(const check *k, gate_case o) {
  if (check_has_form(k, BENCH_PACKED)) o.packed = true;
  return o;
}

/* A case's tensors, and where its bounds go. Packed gradients are one output, da's and db's columns side by side. */
typedef struct gate_fwd {
  tigon_tensor a, b, c;
  double *size; /* [rows * cols], of c */
} gate_fwd;
typedef struct gate_bwd {
  tigon_tensor dc, a, b, da, db;
  double *size, *size_b; /* element i at gate_at(k, packed, i) */
} gate_bwd;

static inline gate_fwd gate_fwd_make(check *k, gate_case of) {
  const gate_case o = gate_of(k, of);
  gate_fwd t;
  gate_and_up(k, o.packed, o.in_place == 1 || o.in_place == 2, &t.a, &t.b);
  t.c = o.in_place == 1 ? t.a : o.in_place == 2 ? t.b : check_out(k, "c", k->dtype, 2, k->dims);
  t.size = check_doubles(k, k->dims[0] * k->dims[1]);
  return t;
}

static inline gate_bwd gate_bwd_make(check *k, gate_case of) {
  const gate_case o = gate_of(k, of);
  const int64_t rows = k->dims[0], cols = k->dims[1], n = rows * cols;
  gate_bwd t;
  gate_and_up(k, o.packed, o.in_place > 0, &t.a, &t.b);
  t.dc = o.in_place ? check_inout(k, "dc", k->dtype, 2, k->dims, CHECK_UNIFORM)
                    : check_in(k, "dc", k->dtype, 2, k->dims, CHECK_UNIFORM);
  if (o.packed) {
    const int64_t wide[] = {rows, 2 * cols};
    t.da = check_out(k, "dab", k->dtype, 2, wide);
    t.db = t.da;
    t.db.data = (char *)t.da.data + (size_t)cols * tigon_dtype_size(k->dtype);
    t.da.shape[1] = t.db.shape[1] = cols;
  } else {
    const tigon_tensor to_a[] = {t.a, t.b, t.dc}, to_b[] = {t.b, t.dc, t.a};
    t.da = o.in_place ? to_a[o.in_place - 1] : check_out(k, "da", k->dtype, 2, k->dims);
    t.db = o.in_place ? to_b[o.in_place - 1] : check_out(k, "db", k->dtype, 2, k->dims);
  }
  t.size = check_doubles(k, 2 * n);
  t.size_b = o.packed ? t.size + cols : t.size + n;
  return t;
}

static inline int64_t gate_at(const check *k, bool packed, int64_t i) {
  return packed ? i / k->dims[1] * 2 * k->dims[1] + i % k->dims[1] : i;
}

/* c within 4 ulp in f32, 1 ulp of a 16-bit dtype, and what size says. A device's calls: an exponential, that of the far tail and a
 * division; what more an activation has is in size. */
static inline void gate_fwd_bound(check *k, const gate_fwd *t) {
  check_bound_relative(k, &t->c, k->dtype == TIGON_F32 ? 4 : 1, 1, t->size, check_calls(k, 2, 1));
}
/* da and db within 8 * 2^-24 of size, and 1 ulp of a 16-bit dtype. A device's calls: as above, and another division. */
static inline void gate_bwd_bound(check *k, gate_bwd *t, bool packed) {
  if (packed) t->da.shape[1] = 2 * k->dims[1];
  const double factor = 8 + check_calls(k, 2, 2);
  check_bound(k, &t->da, k->dtype == TIGON_F32 ? 0 : 1, factor, t->size);
  if (!packed) check_bound(k, &t->db, k->dtype == TIGON_F32 ? 0 : 1, factor, t->size_b);
}

#endif
