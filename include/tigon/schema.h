/* The arguments of every entry point, as the library checks them. Bindings build their structs and calls from these
 * tables. `tigon list OP --schema` prints them.
 *
 * A shape is a pattern with one letter per dimension. The first tensor with a letter gives it its extent, and each other
 * tensor must have the same one.
 *   '2'..'9'  that many elements
 *   '*', '&'  any number of dimensions; each tensor with the sign has the same ones
 *   'r'       the product of the dimensions of '*'
 *   "@"       one element for each row: the dimensions of '*', or [r]
 *   "1 why"   one element, a vector of length 1
 *   "?..."    the operator's header says what; an example follows
 * "*c" is thus [..., C], and "c" beside it a vector of C elements. */
#ifndef TIGON_SCHEMA_H
#define TIGON_SCHEMA_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The type at a field's offset. */
typedef enum tigon_field_kind {
  TIGON_FIELD_TENSOR = 0,    /* tigon_tensor */
  TIGON_FIELD_WORKSPACE = 1, /* void *, and size_t workspace_bytes behind it */
  TIGON_FIELD_DOUBLE = 2,
  TIGON_FIELD_INT = 3, /* int, or an enum */
  TIGON_FIELD_INT64 = 4,
  TIGON_FIELD_LIST = 5,     /* a pointer to elements in host memory, and int64_t count behind it */
  TIGON_FIELD_RESERVED = 6, /* uint64_t[4], all 0 */
  /* NULL, or a pointer to a list of addresses in host memory. It has one address for each index of the first dimension of the
   * tensor before it. The block with that index begins there. */
  TIGON_FIELD_BLOCKS = 7,
} tigon_field_kind;

enum {
  TIGON_FIELD_OUT = 1,         /* a tensor that is written; else it is read */
  TIGON_FIELD_OPTIONAL = 2,    /* a tensor that may be absent */
  TIGON_FIELD_CONTIGUOUS = 4,  /* strides are the natural ones; else the last one is 1 and the others are free */
  TIGON_FIELD_FREE_LAST = 8,   /* the last stride of a tensor with two dimensions is free too */
  TIGON_FIELD_EACH = 16,       /* belongs to each element of the list; `offset` is in the element */
  TIGON_FIELD_OR_ZERO = 32,    /* a number that may be 0 instead, which means "not given" */
  TIGON_FIELD_BELOW_HIGH = 64, /* a number that is less than `high` */
  TIGON_FIELD_IS_FLAG = 128,   /* an int that is 0 or 1 */
  TIGON_FIELD_TURNED = 256,    /* the last two dimensions may be exchanged in memory: either one has the stride 1 */
};

/* One field of an entry's argument struct. */
typedef struct tigon_field {
  const char *name; /* "x"; "options.weight" within a struct of the struct */
  size_t offset;    /* bytes */
  tigon_field_kind kind;
  int flags;         /* TIGON_FIELD_ or-ed */
  const char *shape; /* a tensor's pattern; an integer's letter, whose extent is its value, or NULL */
  uint32_t dtypes;   /* a tensor's: bit 1 << TIGON_F32 and so on */
  /* A tensor's dtype is that of the first tensor which gives it to the letter `as`, or `or_dtype`; 0: any of `dtypes`. */
  char as, gives;
  tigon_dtype or_dtype;
  char below;           /* a tensor's elements are indices below this letter's extent; 0: they are no indices */
  char divides;         /* a number divides this letter's extent; 0: none */
  const char *in_place; /* "x residual": an output may be the same view as one of these; NULL: none */
  double low, high;     /* a number's range; both 0: any; `high` may be infinite */
} tigon_field;

/* One entry point: tigon_<op>_<entry>(context, args). */
typedef struct tigon_schema {
  const char *op, *entry;    /* "rms_norm", "fwd" */
  const char *name;          /* "rms_norm_fwd" */
  const tigon_field *fields; /* [count], in the order of their checks */
  int count;
  size_t bytes;         /* size of the argument struct */
  size_t element_bytes; /* size of an element of its list; 0: it has no list */
} tigon_schema;

/* The i-th entry point, in a fixed order; NULL past the last one. */
TIGON_API const tigon_schema *tigon_schema_at(int index);
/* Calls the i-th entry point with its struct of arguments. INVALID past the last one. */
TIGON_API tigon_status tigon_schema_call(int index, tigon_context *context, const void *args);
/* The workspace that such a call needs, and the size above which it gains no speed. Both are 0 where the entry takes none. */
TIGON_API tigon_status tigon_schema_workspace(int index, tigon_context *context, const void *args, size_t *minimum,
                                              size_t *recommended);

#ifdef __cplusplus
}
#endif

#endif
