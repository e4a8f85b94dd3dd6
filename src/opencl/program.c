#include "opencl/program.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"

enum { PROGRAMS = 256, TEXT = OPENCL_OPTIONS };

struct opencl_room {
  opencl_room *next;
  const cl_api *cl;
  void *device, *context, *stream;
  bool own;
  pthread_mutex_t lock;
  int count;
  struct {
    char file[32], options[TEXT]; /* which say the dtype and the model */
    void *program;
  } programs[PROGRAMS];
};

static opencl_room *rooms;
static pthread_mutex_t rooms_lock = PTHREAD_MUTEX_INITIALIZER;

static opencl_room *make_room(const cl_api *cl, void *device, void *context, int *code) {
  opencl_room *made = calloc(1, sizeof *made);
  *code = CL_OUT_OF_HOST_MEMORY;
  if (!made) return NULL;
  *code = CL_SUCCESS;
  if (context)
    *code = cl->retain_context(context);
  else
    context = cl->create_context(NULL, 1, &device, NULL, NULL, code);
  if (*code != CL_SUCCESS) {
    free(made);
    return NULL;
  }
  made->cl = cl, made->device = device, made->context = context;
  pthread_mutex_init(&made->lock, NULL);
  return made;
}

opencl_room *opencl_room_of(const cl_api *cl, void *device, void *context, int *code) {
  *code = CL_SUCCESS;
  pthread_mutex_lock(&rooms_lock);
  opencl_room *r = rooms;
  while (r && !(r->device == device && (context ? r->context == context : r->own))) r = r->next;
  if (!r && (r = make_room(cl, device, context, code))) {
    r->own = !context;
    r->next = rooms, rooms = r;
  }
  pthread_mutex_unlock(&rooms_lock);
  return r;
}

void *opencl_room_context(const opencl_room *room) { return room->context; }

void *opencl_room_stream(opencl_room *room, int *code) {
  *code = CL_SUCCESS;
  pthread_mutex_lock(&room->lock);
  if (!room->stream)
    room->stream = room->cl->create_command_queue(room->context, room->device, CL_QUEUE_PROFILING_ENABLE, code);
  pthread_mutex_unlock(&room->lock);
  return room->stream;
}

/* ---- building ---- */

void opencl_options(const opencl_device *d, tigon_dtype dtype, char text[OPENCL_OPTIONS]) {
  static const char *const subgroups[] = {"", " -DSUBGROUPS=1", " -DSUBGROUPS=2"};
  snprintf(text, TEXT, "-w -cl-std=%s -DT=%d -DF32=%d -DF16=%d -DBF16=%d -DLANES=%d -DGROUP=%d%s%s",
           d->subgroups == OPENCL_SUBGROUPS_KHR ? "CL2.0" : "CL1.2", (int)dtype, (int)TIGON_F32, (int)TIGON_F16,
           (int)TIGON_BF16, (int)d->lanes, d->model == OPENCL_GROUPS ? (int)d->group : 1, subgroups[d->subgroups],
           d->divides_exactly ? " -cl-fp32-correctly-rounded-divide-sqrt" : "");
}

uint64_t opencl_key(const opencl_device *d, tigon_dtype dtype, uint64_t source) {
  const unsigned what[] = {CL_DEVICE_NAME, CL_DRIVER_VERSION, CL_DEVICE_VERSION};
  char options[TEXT];
  opencl_options(d, dtype, options);
  uint64_t key = opencl_hash(source, options);
  for (size_t i = 0; i < sizeof what / sizeof *what; ++i) {
    char text[TEXT] = "";
    d->cl->get_device_info(d->device, what[i], sizeof text - 1, text, NULL);
    key = opencl_hash(key, text);
  }
  return key;
}

/* The compiler's first words go into queue->reason. */
static tigon_status build(tigon_queue *queue, void *program, const char *options, const char *file) {
  opencl_device *d = opencl_of(queue);
  const int code = d->cl->build_program(program, 1, &d->device, options, NULL, NULL);
  if (code == CL_SUCCESS) return TIGON_OK;
  char log[512] = "";
  size_t bytes = 0;
  if (d->cl->get_program_build_info(program, d->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) == CL_SUCCESS) {
    char *all = malloc(bytes + 1);
    if (all && d->cl->get_program_build_info(program, d->device, CL_PROGRAM_BUILD_LOG, bytes, all, NULL) == CL_SUCCESS)
      snprintf(log, sizeof log, "%.*s", (int)strnlen(all, bytes < 500 ? bytes : 500), all);
    free(all);
  }
  for (char *c = log; *c; ++c)
    if (*c == '\n' || *c == '\r') *c = ' ';
  snprintf(d->reason, sizeof d->reason, "the driver of %s does not build %s: %s", d->desc.name, file, log);
  queue->reason = d->reason;
  return TIGON_ERROR_DEVICE;
}

static void *from_cache(const opencl_device *d, const char *name, uint64_t key, const char *options) {
  size_t bytes;
  unsigned char *binary = opencl_cache_read(name, key, &bytes);
  if (!binary) return NULL;
  const unsigned char *binaries[] = {binary};
  int status = CL_SUCCESS, code = CL_SUCCESS;
  void *program = d->cl->create_program_with_binary(d->context, 1, &d->device, &bytes, binaries, &status, &code);
  free(binary);
  const bool made = program && code == CL_SUCCESS && status == CL_SUCCESS;
  if (made && d->cl->build_program(program, 1, &d->device, options, NULL, NULL) == CL_SUCCESS) return program;
  if (program) d->cl->release_program(program);
  return NULL;
}

static void to_cache(const opencl_device *d, const char *name, uint64_t key, void *program) {
  size_t bytes = 0;
  if (d->cl->get_program_info(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) != CL_SUCCESS || !bytes)
    return;
  unsigned char *binary = malloc(bytes);
  if (binary && d->cl->get_program_info(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS)
    opencl_cache_write(name, key, binary, bytes);
  free(binary);
}

static tigon_status from_source(tigon_queue *queue, const char *source, const char *options, const char *file,
                                void **program) {
  const opencl_device *d = opencl_of(queue);
  int code;
  *program = d->cl->create_program_with_source(d->context, 1, &source, NULL, &code);
  TIGON_TRY(opencl_check(queue, code, "clCreateProgramWithSource"));
  const tigon_status status = build(queue, *program, options, file);
  if (status != TIGON_OK) d->cl->release_program(*program);
  return status;
}

static tigon_status make(tigon_queue *queue, const char *file, tigon_dtype dtype, void **program) {
  const opencl_device *d = opencl_of(queue);
  char options[TEXT], name[TEXT];
  snprintf(name, sizeof name, "%s.cl", file);
  opencl_options(d, dtype, options);
  char *source = opencl_source(name);
  if (!source) return queue->reason = "out of memory", TIGON_ERROR_OUT_OF_MEMORY;
  const uint64_t key = opencl_key(d, dtype, opencl_hash(0, source));
  snprintf(name, sizeof name, "%s-%s", file, tigon_dtype_name(dtype));
  tigon_status status = TIGON_OK;
  *program = from_cache(d, name, key, options);
  if (!*program) {
    status = from_source(queue, source, options, file, program);
    if (status == TIGON_OK) to_cache(d, name, key, *program);
  }
  free(source);
  return status;
}

tigon_status opencl_program(tigon_queue *queue, const char *file, tigon_dtype dtype, void **program) {
  const opencl_device *d = opencl_of(queue);
  opencl_room *room = d->room;
  tigon_status status = TIGON_OK;
  char options[TEXT];
  opencl_options(d, dtype, options);
  pthread_mutex_lock(&room->lock);
  int i = 0;
  while (i < room->count &&
         (strcmp(room->programs[i].file, file) != 0 || strcmp(room->programs[i].options, options) != 0))
    ++i;
  if (i == PROGRAMS) {
    queue->reason = "too many programs for one device";
    status = TIGON_ERROR_DEVICE;
  } else if (i == room->count) {
    status = make(queue, file, dtype, &room->programs[i].program);
    if (status == TIGON_OK) {
      snprintf(room->programs[i].file, sizeof room->programs[i].file, "%s", file);
      snprintf(room->programs[i].options, TEXT, "%s", options);
      ++room->count;
    }
  }
  *program = status == TIGON_OK ? room->programs[i].program : NULL;
  pthread_mutex_unlock(&room->lock);
  return status;
}
