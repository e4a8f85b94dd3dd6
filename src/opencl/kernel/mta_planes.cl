#ifndef MTA_PLANES_CL
#define MTA_PLANES_CL
/* Rows of the planes of multi_token_attention, and of its workspace. */
#include "rows.cl"
#include "multi_token_attention.h"

static inline long allowed(long row, long cols) { return row < cols ? row + 1 : cols; }
/* All rows of a band, in all planes: `plane` and `row`. */
#define FOR_BAND(plane, row, planes, band)                                                                \
  for (long at_ = row_first(), count_ = (band).end - (band).begin, plane = count_ > 0 ? at_ / count_ : 0, \
            row = count_ > 0 ? (band).begin + at_ % count_ : 0;                                           \
       at_ < (planes)*count_; at_ += row_step(), plane = at_ / count_, row = (band).begin + at_ % count_)

static inline source u_row(const mta_numbers *k, memory u, long plane, long y) {
  return (source){u, (plane * k->u_rows + y - k->reach.begin) * k->tokens, F32};
}
static inline source o_row(const mta_numbers *k, memory of, long plane, long i) {
  return (source){of, (plane * k->o_rows + i - k->made.begin) * k->cols, F32};
}
static inline source y_row(const mta_numbers *k, memory c, long plane, long y) {
  return (source){c, (plane * k->y_rows + y - k->y.begin) * k->tokens, F32};
}
static inline void put_n(const source *to, long i, long n, vf v) { store_n(to->of, to->at + i, to->dtype, n, v); }

#endif
