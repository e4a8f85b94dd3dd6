#include "ascend/aclnn.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

/* All operators, or those of neural networks where CANN is split. */
static const char *const libraries[] = {"libopapi.so", "libopapi_nn.so"};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static aclnn_api api;
static bool ready;

#define ACLNN_FUNCTIONS(X)                                    \
  X("aclCreateTensor", create_tensor)                         \
  X("aclDestroyTensor", destroy_tensor)                       \
  X("aclSetAclOpExecutorRepeatable", set_executor_repeatable) \
  X("aclDestroyAclOpExecutor", destroy_executor)              \
  X("aclnnMmGetWorkspaceSize", mm_get_workspace_size)         \
  X("aclnnMm", mm)

/* A name is looked for in what the library needs, too: tensors are in another one. */
static bool resolve(void *library, aclnn_api *made) {
  void *symbol;
#define ACLNN_RESOLVE(name, member)                   \
  if (!(symbol = dlsym(library, name))) return false; \
  memcpy(&made->member, &symbol, sizeof made->member);
  ACLNN_FUNCTIONS(ACLNN_RESOLVE)
#undef ACLNN_RESOLVE
  return true;
}

static bool load(void) {
  for (int i = 0; i < LIBRARIES; ++i) {
    void *library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    if (library && resolve(library, &api)) return true;
    if (library) dlclose(library);
  }
  return false;
}

const aclnn_api *ascend_aclnn(void) {
  pthread_mutex_lock(&lock);
  if (!ready) ready = load();
  const bool there = ready;
  pthread_mutex_unlock(&lock);
  return there ? &api : NULL;
}
