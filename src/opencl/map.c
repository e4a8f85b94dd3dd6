#include <math.h>

#include "opencl/kernel/map.h"
#include "opencl/opencl.h"
#include "opencl/tables.h"

static tigon_status launch(tigon_queue *queue, const tigon_map_problem *p, const opencl_kernel *kernel) {
  const opencl_device *d = opencl_of(queue);
  const tigon_map_numbers *n = &p->numbers;
  map_numbers k = {.space = p->space,
                   .cols = p->cols,
                   .gate_mult = n->gate_mult,
                   .down_mult = n->down_mult,
                   .limit = n->clamp > 0 ? n->clamp : INFINITY,
                   .up_offset = n->up_offset,
                   .in_place = p->in[0].data == p->out[0].data};
  const void *memory[MAP_TENSORS] = {NULL};
  for (int i = 0; i < p->inputs + p->outputs; ++i) {
    const tigon_rows *t = i < p->inputs ? &p->in[i] : &p->out[i - p->inputs];
    memory[i] = t->data;
    k.pitch[i] = opencl_pitch(t);
  }
  if (n->factor) memory[p->inputs + p->outputs] = n->factor;
  /* Drivers of CPUs compile a kernel again for each size of its groups. */
  const bool alone = d->model == OPENCL_ITEMS;
  const int64_t local = alone ? 1 : d->group, each = alone ? MAP_ITEM_EACH : MAP_GROUP_EACH;
  const int64_t groups = opencl_ceil_div(p->cols, local * each * d->lanes);
  const opencl_shape shape = {.global = {groups * local, p->space.rows}, .local = {local, 1}};
  return opencl_launch(queue, kernel, p->dtype, shape, MAP_TENSORS, memory, &k, sizeof k);
}

/* Every elementwise slot: the file of its kernel, its name, and the kernel's. */
#define MAP(file, slot)                                                              \
  tigon_status tigon_opencl_##slot(tigon_queue *queue, const tigon_map_problem *p) { \
    static const opencl_kernel kernel = {#file, #slot};                              \
    return launch(queue, p, &kernel);                                                \
  }
/* The same with kernels for each of the two forms of gelu. */
#define MAP_GELU(entry)                                                                                       \
  tigon_status tigon_opencl_geglu_##entry(tigon_queue *queue, const tigon_map_problem *p) {                   \
    static const opencl_kernel kernels[] = {{"geglu", "geglu_tanh_" #entry}, {"geglu", "geglu_erf_" #entry}}; \
    return launch(queue, p, &kernels[p->numbers.approx == TIGON_GELU_ERF]);                                   \
  }
MAP(relu_squared, relu_squared_fwd)
MAP(relu_squared, relu_squared_bwd)
MAP(scale, scale_fwd)
MAP(swiglu, swiglu_fwd)
MAP(swiglu, swiglu_bwd)
MAP_GELU(fwd)
MAP_GELU(bwd)
