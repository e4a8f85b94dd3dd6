/* The lists that everything is driven by: the backends of this build, and the entries of ops.def. */
#include <stdio.h>
#include <string.h>

#include "backend.h"
#include "core/devices.h"
#include "core/schema.h"

extern const tigon_backend tigon_cuda_backend, tigon_npu_backend, tigon_xpu_backend, tigon_cpu_backend,
    tigon_ref_backend, tigon_opencl_backend, tigon_ascend_sim_backend;

/* The order of inference is cuda, npu, xpu, cpu, which is always there; those behind it are never inferred. */
static const tigon_backend *const backends[] = {&tigon_cuda_backend,      &tigon_npu_backend,    &tigon_xpu_backend,
                                                &tigon_cpu_backend,       &tigon_opencl_backend, &tigon_ref_backend,
                                                &tigon_ascend_sim_backend};
enum { BACKENDS = sizeof backends / sizeof *backends };

const tigon_backend *tigon_backend_at(int index) { return index >= 0 && index < BACKENDS ? backends[index] : NULL; }

const tigon_backend *tigon_backend_find(const char *name) {
  for (int i = 0; i < BACKENDS; ++i)
    if (strcmp(backends[i]->name, name) == 0) return backends[i];
  return NULL;
}

void tigon_backend_device_name(const tigon_backend *backend, int index, int count, char name[TIGON_DEVICE_NAME]) {
  if (backend->name_of)
    snprintf(name, TIGON_DEVICE_NAME, "%s:%s", backend->name, backend->name_of(index));
  else
    snprintf(name, TIGON_DEVICE_NAME, count > 1 ? "%s:%d" : "%s", backend->name, index);
}

static const tigon_entry entries[] = {
#define TIGON_SLOT(op, entry) {#op, #entry, false},
#define TIGON_COMPOSITE(op, entry) {#op, #entry, true},
#include "ops.def"
};
enum { ENTRIES = sizeof entries / sizeof *entries };

const tigon_entry *tigon_entry_at(int index) { return index >= 0 && index < ENTRIES ? &entries[index] : NULL; }

/* The dtypes that the first tensor of floats may have. */
static uint32_t described_dtypes(const tigon_schema *schema) {
  int i = 0;
  while (!(schema->fields[i].dtypes & TIGON_FLOATS)) ++i;
  return schema->fields[i].dtypes;
}

/* The slots that a head with a loss calls besides. */
static bool has_loss(const tigon_kernels *kernels, const char *op) {
  const bool policy = strcmp(op, "fused_linear_policy") == 0, preference = strcmp(op, "fused_linear_preference") == 0;
  if (strcmp(op, "fused_linear_divergence") == 0) return kernels->divergence_fwd.run && kernels->divergence_bwd.run;
  if (strcmp(op, "fused_linear_topk_divergence") == 0)
    return kernels->topk_divergence_fwd.run && kernels->topk_divergence_bwd.run && kernels->divergence_fwd.run;
  if (!policy && !preference) return true;
  return kernels->cross_entropy_bwd.run &&
         (policy ? kernels->policy_loss_fwd.run != NULL : kernels->preference_loss_fwd.run != NULL);
}

uint32_t tigon_entry_dtypes(const tigon_kernels *kernels, int index) {
  /* A composite runs on linear and cross_entropy. */
  const uint32_t composite = (kernels->linear_fwd.run ? kernels->linear_fwd.dtypes : 0) &
                             (kernels->linear_bwd.run ? kernels->linear_bwd.dtypes : 0) &
                             (kernels->cross_entropy_fwd.run ? kernels->cross_entropy_fwd.dtypes : 0);
  /* mlp runs on linear and the gates. */
  const uint32_t mlp = (kernels->linear_fwd.run ? kernels->linear_fwd.dtypes : 0) &
                       (kernels->linear_bwd.run ? kernels->linear_bwd.dtypes : 0) &
                       (kernels->swiglu_bwd.run ? kernels->swiglu_bwd.dtypes : 0) &
                       (kernels->geglu_bwd.run ? kernels->geglu_bwd.dtypes : 0);
  const uint32_t dtypes[] = {
#define TIGON_SLOT(op, entry) kernels->op##_##entry.run ? kernels->op##_##entry.dtypes : 0,
#define TIGON_COMPOSITE(op, entry) strcmp(#op, "mlp") == 0 ? mlp : has_loss(kernels, #op) ? composite : 0,
#include "ops.def"
  };
  return index >= 0 && index < ENTRIES ? dtypes[index] & described_dtypes(tigon_schema_at(index)) : 0;
}

const char *tigon_entry_grade(const tigon_kernels *kernels, int index) {
  const bool rounded[] = {
#define TIGON_SLOT(op, entry) kernels->op##_##entry.rounded,
#define TIGON_COMPOSITE(op, entry) false,
#include "ops.def"
  };
  const tigon_schema *schema = index >= 0 && index < ENTRIES ? tigon_schema_at(index) : NULL;
  for (int i = 0; schema && i < schema->count; ++i)
    if (strcmp(schema->fields[i].name, "exact") == 0) return rounded[index] ? "rounded" : "exact";
  return NULL;
}
