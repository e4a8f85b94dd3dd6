#include "ascend/aclnn.h"

#include "core/outside.h"

/* All operators, or those of neural networks where CANN is split. */
static const char *const names[] = {"libopapi.so", "libopapi_nn.so", NULL};

/* A name is looked for in what the library needs, too: tensors are in another one. */
#define ACLNN(name, member) \
  { #name, offsetof(aclnn_api, member) }
static const tigon_symbol symbols[] = {
    ACLNN(aclCreateTensor, create_tensor),
    ACLNN(aclDestroyTensor, destroy_tensor),
    ACLNN(aclSetAclOpExecutorRepeatable, set_executor_repeatable),
    ACLNN(aclDestroyAclOpExecutor, destroy_executor),
    ACLNN(aclnnMmGetWorkspaceSize, mm_get_workspace_size),
    ACLNN(aclnnMm, mm),
};

static aclnn_api api;
static tigon_outside library = {names, symbols, sizeof symbols / sizeof *symbols, &api, PTHREAD_MUTEX_INITIALIZER,
                                false};

const aclnn_api *ascend_aclnn(void) { return tigon_outside_api(&library); }
