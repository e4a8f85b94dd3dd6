/* What tests of an NPU over a library of operators of ours (fake/opapi.c) share. */
#ifndef TIGON_TESTS_ASCEND_FAKE_NPU_H
#define TIGON_TESTS_ASCEND_FAKE_NPU_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <tigon/tigon.h>

static struct {
  void (*fail_at)(const char *call, int nth, int code);
  int (*alive)(void);
  int (*get_device)(int32_t *device);
  int (*set_device)(int32_t device);
  void (*workspace)(uint64_t more);
  void (*workspace_of_heads)(uint64_t each);
  int (*attention_calls)(void);
} fake;

static inline int setup(void **state) {
  (void)state;
  void *runtime = dlopen("libacl_rt.so", RTLD_NOW | RTLD_LOCAL),
       *operators = dlopen("libopapi.so", RTLD_NOW | RTLD_LOCAL);
  if (!runtime || !operators) return -1;
  *(void **)&fake.fail_at = dlsym(runtime, "fake_acl_fail");
  *(void **)&fake.alive = dlsym(runtime, "fake_acl_alive");
  *(void **)&fake.get_device = dlsym(runtime, "aclrtGetDevice");
  *(void **)&fake.set_device = dlsym(runtime, "aclrtSetDevice");
  *(void **)&fake.workspace = dlsym(operators, "fake_opapi_workspace");
  *(void **)&fake.workspace_of_heads = dlsym(operators, "fake_opapi_workspace_of_heads");
  *(void **)&fake.attention_calls = dlsym(operators, "fake_opapi_attention_calls");
  return fake.fail_at && fake.workspace ? 0 : -1; /* CANN's own has no such thing */
}

static inline tigon_context *open_npu(const char *device) {
  tigon_context *context;
  if (tigon_context_create(&(tigon_context_desc){.device = device}, &context) != TIGON_OK)
    fail_msg("%s", tigon_last_error(NULL));
  return context;
}

static inline void *to_device(tigon_context *context, const void *from, size_t bytes) {
  void *there = NULL;
  assert_int_equal(tigon_alloc(context, bytes, &there), TIGON_OK);
  assert_int_equal(tigon_copy(context, there, from, bytes), TIGON_OK);
  return there;
}

static inline void from_device(tigon_context *context, void *to, void *there, size_t bytes) {
  if (tigon_copy(context, to, there, bytes) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  tigon_free(context, there);
}

#endif
