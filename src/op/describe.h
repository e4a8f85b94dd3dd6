/* The words in which a front describes an entry's arguments: one table beside its front, which everything else reads
 * (schema.h says what the columns mean). A front defines A as the entry's struct first. */
#ifndef TIGON_OP_DESCRIBE_H
#define TIGON_OP_DESCRIBE_H

#include <float.h>
#include <math.h>

#include "core/schema.h"

/* Strides: free but for the last one; all natural; all free where a tensor has two dimensions; free but for one of the last two. */
enum { ROWS = 0, DENSE = TIGON_FIELD_CONTIGUOUS, FREE = TIGON_FIELD_FREE_LAST, EITHER = TIGON_FIELD_TURNED };

/* dtypes: the one that the call's main tensor has, or f32; always the same one; any float; that of an index. */
#define SAME .dtypes = TIGON_FLOATS, .as = 'T', .gives = 'T'
#define SAME_OR_F32 .dtypes = TIGON_FLOATS, .as = 'T', .or_dtype = TIGON_F32
/* The same of a second tensor, and the tensors that give its dtype. */
#define SAME_GIVES_SECOND .dtypes = TIGON_FLOATS, .as = 'T', .gives = 'U'
#define SAME_OR_F32_GIVES_SECOND SAME_OR_F32, .gives = 'U'
#define SECOND .dtypes = TIGON_FLOATS, .as = 'U'
#define SECOND_OR_F32 SECOND, .or_dtype = TIGON_F32
#define F32 .dtypes = TIGON_BIT(TIGON_F32)
#define FLOAT .dtypes = TIGON_FLOATS
#define FLOAT_GIVES_SECOND FLOAT, .gives = 'U'
#define I32 .dtypes = TIGON_BIT(TIGON_I32)
#define I64 .dtypes = TIGON_BIT(TIGON_I64)
/* An integer that is compared, not followed. */
#define INTEGER .dtypes = TIGON_INTS
#define INDEX(letter) .dtypes = TIGON_INTS, .below = letter

/* What a row is quantised to. */
#define QUANTISED .dtypes = TIGON_BIT(TIGON_F8E4M3) | TIGON_BIT(TIGON_I8)

/* A compile error where the field has another type. */
#define TENSOR_AT(of, field) \
  .name = #field, .offset = offsetof(of, field), .kind = _Generic(((of *)0)->field, tigon_tensor : TIGON_FIELD_TENSOR)
#define NUMBER_AT(of, field)                     \
  .name = #field, .offset = offsetof(of, field), \
  .kind = _Generic(((of *)0)->field, double      \
                   : TIGON_FIELD_DOUBLE, int64_t \
                   : TIGON_FIELD_INT64, int      \
                   : TIGON_FIELD_INT, unsigned   \
                   : TIGON_FIELD_INT)

/* Tensors that are read, that may be absent, that are written, that are written where they are present. */
#define IN(field, pattern, dtype, strides) \
  { TENSOR_AT(A, field), .flags = strides, .shape = pattern, dtype }
#define MAY(field, pattern, dtype, strides) \
  { TENSOR_AT(A, field), .flags = TIGON_FIELD_OPTIONAL | strides, .shape = pattern, dtype }
#define OUT(field, pattern, dtype, strides, over) \
  { TENSOR_AT(A, field), .flags = TIGON_FIELD_OUT | strides, .shape = pattern, .in_place = over, dtype }
#define WANT(field, pattern, dtype, strides, over)                                                    \
  {                                                                                                   \
    TENSOR_AT(A, field), .flags = TIGON_FIELD_OUT | TIGON_FIELD_OPTIONAL | strides, .shape = pattern, \
                         .in_place = over, dtype                                                      \
  }

/* Numbers from `least` to `most`; a flag; an enum; any number. */
#define NUMBER(field, least, most) \
  { NUMBER_AT(A, field), .low = least, .high = most }
#define FINITE(field) NUMBER(field, -FLT_MAX, FLT_MAX)
#define FLAG(field) \
  { NUMBER_AT(A, field), .flags = TIGON_FIELD_IS_FLAG, .high = 1 }
#define CHOICE(field, last) NUMBER(field, 0, last)
/* More than 0, or 0 for "not given". */
#define OR_ZERO(field) \
  { NUMBER_AT(A, field), .flags = TIGON_FIELD_OR_ZERO, .low = FLT_MIN, .high = FLT_MAX }
/* An extent that divides another one. */
#define DIVISOR(field, letter, of) \
  { NUMBER_AT(A, field), .shape = letter, .divides = of }
#define AT_LEAST(field, least) NUMBER(field, least, (double)INFINITY)
#define ANY(field) \
  { NUMBER_AT(A, field) }
/* Less than `most`. */
#define BELOW(field, least, most) \
  { NUMBER_AT(A, field), .flags = TIGON_FIELD_BELOW_HIGH, .low = least, .high = most }
#define WORKSPACE \
  { .name = "workspace", .offset = offsetof(A, workspace), .kind = TIGON_FIELD_WORKSPACE }
/* Where the blocks of the tensor before it begin, where that says nothing of it. */
#define BLOCKS(field) \
  { .name = #field, .offset = offsetof(A, field), .kind = TIGON_FIELD_BLOCKS }
#define RESERVED(field) \
  { .name = #field, .offset = offsetof(A, field), .kind = TIGON_FIELD_RESERVED }

/* A list of elements of the type E, and the fields of each: contiguous tensors of one shape, numbers. */
#define LIST(field) \
  { .name = #field, .offset = offsetof(A, field), .kind = TIGON_FIELD_LIST }
#define EACH_TENSOR(field, dtype, role) \
  { TENSOR_AT(E, field), .flags = TIGON_FIELD_EACH | DENSE | (role), .shape = "*", dtype }
#define EACH_NUMBER(field, least, most) \
  { NUMBER_AT(E, field), .flags = TIGON_FIELD_EACH, .low = least, .high = most }

/* The description of tigon_<op>_<entry>() by a list of fields; front.h's entries bring it along. */
#define DESCRIBE(op, entry, list) DESCRIBE_OF(op, entry, list, A, 0)
#define DESCRIBE_LIST(op, entry, list) DESCRIBE_OF(op, entry, list, A, sizeof(E))
#define DESCRIBE_OF(op, entry, list, args, each)                                                            \
  _Static_assert(sizeof(list) / sizeof *(list) <= TIGON_MAX_FIELDS && sizeof(args) <= TIGON_MAX_ARGS_BYTES, \
                 "more than callers have room for");                                                        \
  const tigon_schema tigon_##op##_##entry##_schema = {                                                      \
      #op, #entry, #op "_" #entry, list, sizeof(list) / sizeof *(list), sizeof(args), each}

#endif
