#include "ascend/acl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

/* The newer name first. */
static const char *const libraries[] = {"libacl_rt.so", "libascendcl.so"};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static acl_api api;
static bool ready;
static _Thread_local char why[256];

/* Name, member and whether the runtime must have it. */
#define ACL_FUNCTIONS(X)                                                                          \
  X("aclInit", init, true)                                                                        \
  X("aclrtGetDeviceCount", get_device_count, true)                                                \
  X("aclrtSetDevice", set_device, true)                                                           \
  X("aclrtGetDevice", get_device, true)                                                           \
  X("aclrtGetSocName", get_soc_name, true)                                                        \
  X("aclrtGetVersion", get_version, false)                                                        \
  X("aclrtCreateStream", create_stream, true)                                                     \
  X("aclrtDestroyStream", destroy_stream, true)                                                   \
  X("aclrtSynchronizeStream", synchronize_stream, true)                                           \
  X("aclrtMalloc", malloc, true)                                                                  \
  X("aclrtFree", free, true)                                                                      \
  X("aclrtMemcpyAsync", memcpy_async, true)                                                       \
  X("aclrtMemsetAsync", memset_async, true)                                                       \
  X("aclrtBinaryLoadFromFile", binary_load_from_file, false)                                      \
  X("aclrtBinaryLoadFromData", binary_load_from_data, !made.binary_load_from_file)                \
  X("aclrtBinaryUnLoad", binary_unload, true)                                                     \
  X("aclrtBinaryGetFunction", binary_get_function, true)                                          \
  X("aclrtLaunchKernelWithHostArgs", launch_kernel_with_host_args, false)                         \
  X("aclrtKernelArgsInit", kernel_args_init, !made.launch_kernel_with_host_args)                  \
  X("aclrtKernelArgsAppend", kernel_args_append, !made.launch_kernel_with_host_args)              \
  X("aclrtKernelArgsFinalize", kernel_args_finalize, !made.launch_kernel_with_host_args)          \
  X("aclrtLaunchKernelWithConfig", launch_kernel_with_config, !made.launch_kernel_with_host_args) \
  X("aclrtGetDeviceInfo", get_device_info, false)                                                 \
  X("aclGetDeviceCapability", get_device_capability, false)                                       \
  X("aclrtCreateEvent", create_event, true)                                                       \
  X("aclrtDestroyEvent", destroy_event, true)                                                     \
  X("aclrtRecordEvent", record_event, true)                                                       \
  X("aclrtSynchronizeEvent", synchronize_event, true)                                             \
  X("aclrtEventElapsedTime", event_elapsed_time, true)

/* POSIX has functions and objects in pointers of one size; ISO C knows no conversion. */
static void *symbol(void *library, const char *name, bool needed, const char **missing) {
  void *found = dlsym(library, name);
  if (!found && needed && !*missing) *missing = name;
  return found;
}

/* The name of a function that the library lacks, NULL when it has all. */
static const char *resolve(void *library, acl_api *to) {
  acl_api made = {0};
  const char *missing = NULL;
#define ACL_RESOLVE(name, member, needed) *(void **)&made.member = symbol(library, name, needed, &missing);
  ACL_FUNCTIONS(ACL_RESOLVE)
#undef ACL_RESOLVE
  *to = made;
  return missing;
}

static bool load(void) {
  void *library = NULL;
  int which = 0;
  while (which < LIBRARIES && !(library = dlopen(libraries[which], RTLD_NOW | RTLD_LOCAL))) ++which;
  if (!library) {
    snprintf(
        why, sizeof why,
        "neither libacl_rt.so nor libascendcl.so is found: CANN is not installed, or its set_env.sh was not sourced");
    return false;
  }
  acl_api made;
  const char *missing = resolve(library, &made);
  if (missing) {
    snprintf(why, sizeof why, "%s has no %s: this CANN is too old", libraries[which], missing);
    dlclose(library);
    return false;
  }
  made.library = libraries[which];
  const int code = made.init(NULL);
  if (code != ACL_OK && code != ACL_REPEAT_INITIALIZE) {
    snprintf(why, sizeof why, "aclInit returned %d (%s)", code, ascend_acl_name(code));
    dlclose(library);
    return false;
  }
  api = made;
  return true;
}

const acl_api *ascend_acl(const char **reason) {
  pthread_mutex_lock(&lock);
  if (!ready) ready = load();
  const bool there = ready;
  pthread_mutex_unlock(&lock);
  *reason = there ? "" : why;
  return there ? &api : NULL;
}
