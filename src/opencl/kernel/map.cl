/* Elementwise work, every byte once: a work-item alone has vectors that lie end to end, those of a group have them in turns. All inputs of a
 * vector are loaded before an output is stored, so that outputs may lie over inputs. */
#include "math.cl"
#include "map.h"

#define MAP_EACH (GROUP == 1 ? MAP_ITEM_EACH : MAP_GROUP_EACH)
/* `done`: there is nothing to do. */
#define MAP_KERNEL(name, inputs, outputs, formula) MAP_KERNEL_UNLESS(name, 0, inputs, outputs, formula)
#define MAP_KERNEL_UNLESS(name, done, inputs, outputs, formula)                                                 \
  __kernel void name(TENSOR(t0), TENSOR(t1), TENSOR(t2), TENSOR(t3), TENSOR(t4), const map_numbers k) {         \
    if (done) return;                                                                                           \
    const memory of[MAP_TENSORS] = {memory_of(t0), memory_of(t1), memory_of(t2), memory_of(t3), memory_of(t4)}; \
    const long row = (long)get_global_id(1);                                                                    \
    long at[MAP_TENSORS], c = vectors_first(MAP_EACH), e = 0;                                                   \
    for (int i = 0; i < inputs + outputs; ++i) at[i] = row_offset(&k.space, &k.pitch[i], row);                  \
    MAP_VECTORS(inputs, outputs, formula, c + LANES <= k.cols, LANES)                                           \
    MAP_VECTORS(inputs, outputs, formula, c < k.cols, k.cols - c)                                               \
  }
/* The next vectors as long as they are `inside`, of n elements or LANES. Whole ones have a loop without tests of n. */
#define MAP_VECTORS(inputs, outputs, formula, inside, n)                                          \
  for (; e < MAP_EACH && (inside); ++e, c += GROUP * LANES) {                                     \
    vf in[inputs], out[outputs];                                                                  \
    _Pragma("unroll") for (int i = 0; i < inputs; ++i) in[i] = load_n(of[i], at[i] + c, T, n);    \
    formula;                                                                                      \
    _Pragma("unroll") for (int i = 0; i < outputs; ++i)                                           \
        store_n(of[inputs + i], at[inputs + i] + c, T, n, out[i]);                                \
  }
