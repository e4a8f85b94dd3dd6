#include "ascend/aclnn.h"

#include "core/outside.h"

/* All operators, or those of neural networks where CANN is split. */
static const char *const names[] = {"libopapi.so", "libopapi_nn.so", NULL};

/* A name is looked for in what the library needs, too: tensors are in another one. */
#define ACLNN(name, api, member) \
  { #name, offsetof(api, member) }
static const tigon_symbol symbols[] = {
    ACLNN(aclCreateTensor, aclnn_api, create_tensor),
    ACLNN(aclDestroyTensor, aclnn_api, destroy_tensor),
    ACLNN(aclSetAclOpExecutorRepeatable, aclnn_api, set_executor_repeatable),
    ACLNN(aclDestroyAclOpExecutor, aclnn_api, destroy_executor),
    ACLNN(aclnnMmGetWorkspaceSize, aclnn_api, mm_get_workspace_size),
    ACLNN(aclnnMm, aclnn_api, mm),
};

/* Or those of transformers. */
static const char *const attention_names[] = {"libopapi.so", "libopapi_transformer.so", NULL};
static const tigon_symbol attention_symbols[] = {
    ACLNN(aclnnFlashAttentionScoreGetWorkspaceSize, aclnn_attention_api, score_get_workspace_size),
    ACLNN(aclnnFlashAttentionScore, aclnn_attention_api, score),
    ACLNN(aclnnFlashAttentionScoreGradGetWorkspaceSize, aclnn_attention_api, grad_get_workspace_size),
    ACLNN(aclnnFlashAttentionScoreGrad, aclnn_attention_api, grad),
};

static aclnn_api api;
static tigon_outside library = {names, symbols, sizeof symbols / sizeof *symbols, &api, PTHREAD_MUTEX_INITIALIZER,
                                false};

static aclnn_attention_api attention_api;
static tigon_outside attention_library = {
    attention_names, attention_symbols,         sizeof attention_symbols / sizeof *attention_symbols,
    &attention_api,  PTHREAD_MUTEX_INITIALIZER, false};

const aclnn_api *ascend_aclnn(void) { return tigon_outside_api(&library); }
/* Its tensors are those of the other library. */
const aclnn_attention_api *ascend_aclnn_attention(void) {
  return ascend_aclnn() ? tigon_outside_api(&attention_library) : NULL;
}

int ascend_aclnn_dtype(tigon_dtype dtype) {
  return dtype == TIGON_F32 ? ACLNN_F32 : dtype == TIGON_F16 ? ACLNN_F16 : ACLNN_BF16;
}

void *ascend_aclnn_tensor(const aclnn_api *aclnn, const void *data, int dtype, int ndim, const int64_t *shape,
                          const int64_t *strides) {
  const int64_t size = dtype == ACLNN_F32 ? 4 : dtype == ACLNN_U8 ? 1 : 2;
  const int64_t offset = (int64_t)((uintptr_t)data % ACLNN_ALIGNMENT) / size;
  int64_t used[4], last = offset, dense = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    used[i] = shape[i] == 1 ? dense : strides[i];
    last += (shape[i] - 1) * used[i];
    dense = shape[i] * used[i];
  }
  const int64_t storage[] = {last + 1};
  return aclnn->create_tensor(shape, (uint64_t)ndim, dtype, used, offset, ACLNN_FORMAT_ND, storage, 1,
                              (char *)data - offset * size);
}
