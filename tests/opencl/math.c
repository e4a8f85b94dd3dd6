/* What src/opencl/kernel/elementary.h says of exp, log and their like, on the first OpenCL device. It is held to the C library's doubles over
 * all exponents, as vectors and as floats, and for infinities and NaN. Skipped without a device. */
#include "../api/api.h"

#include "core/context.h"
#include "opencl/devices.h"
#include "opencl/program.h"

static double logistic(double u) { return 1 / (1 + exp(-u)); }
static double log_logistic(double u) { return u < 0 ? u - log1p(exp(u)) : -log1p(exp(-u)); }
static double tanh_slope(double x) { return 4 / ((exp(x) + exp(-x)) * (exp(x) + exp(-x))); }

static const struct function {
  const char *name;
  double (*exact)(double);
  double ulps;
  float least, most; /* the arguments, and NaN */
} functions[] = {{"exp", exp, 2.5, -INFINITY, INFINITY},
                 {"exp_to_64", exp, 2.5, -INFINITY, 64},
                 {"exp_near", exp, 2.5, -86, 64},
                 {"expm1", expm1, 2.5, -INFINITY, INFINITY},
                 {"log", log, 2.5, -INFINITY, INFINITY},
                 {"log1p", log1p, 3, -INFINITY, INFINITY},
                 {"logistic", logistic, 2.5, -INFINITY, INFINITY},
                 {"log_logistic", log_logistic, 3.5, -INFINITY, INFINITY},
                 {"tanh", tanh, 2.5, -INFINITY, INFINITY},
                 {"slope", tanh_slope, 5.5, -INFINITY, INFINITY}};
enum { FUNCTIONS = sizeof functions / sizeof *functions, COUNT = 1 << 20, LINE = 256 };

static const char slope[] = "static inline vf slope_of(vf x) { vf s; tanh_slope_of(x, &s); return s; }\n"
                            "static inline float slope_one(float x) { float s; tanh_slope_one(x, &s); return s; }\n";

static float x[COUNT], y[COUNT];

/* An ULP of the result, of the smallest denormal at least. */
static double ulp_of(double value) {
  int exponent;
  frexp(value, &exponent);
  return ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
}

static void compare(const struct function *f, const char *form) {
  double worst = 0;
  for (int i = 0; i < COUNT; ++i) {
    if (x[i] > f->most || x[i] < f->least) continue;
    const double must = f->exact((double)x[i]), rounded = (double)(float)must;
    if (isnan(must) || isinf(rounded)) {
      if (!(isnan(must) ? isnan(y[i]) : (double)y[i] == rounded || fabs(must) < 0x1.000001p128))
        fail_msg("%s_%s(%a) is %a, must be %a", f->name, form, (double)x[i], (double)y[i], must);
      continue;
    }
    const double error = fabs((double)y[i] - must) / ulp_of(must);
    if (!(error <= f->ulps))
      fail_msg("%s_%s(%a) is %a, must be %a: %.2f ULP", f->name, form, (double)x[i], (double)y[i], must, error);
    if (error > worst) worst = error;
  }
  print_message("%s_%s: %.2f ULP\n", f->name, form, worst);
}

static void *build(const cl_api *cl, void *context, void *device, int lanes) {
  char options[LINE], *text = opencl_source("math.cl"),
                      *all = malloc(strlen(text) + FUNCTIONS * 2 * LINE + sizeof slope);
  size_t used = (size_t)sprintf(all, "%s%s", text, slope);
  for (int i = 0; i < FUNCTIONS; ++i)
    used += (size_t)sprintf(all + used,
                            "__kernel void %s_k(__global const float *x, __global float *y) {\n"
                            "  const size_t i = get_global_id(0);\n"
                            "  store_floats(%s_of(load_floats(i, x)), i, y);\n}\n"
                            "__kernel void %s_k1(__global const float *x, __global float *y) {\n"
                            "  const size_t i = get_global_id(0);\n"
                            "  y[i] = %s_one(x[i]);\n}\n",
                            functions[i].name, functions[i].name, functions[i].name, functions[i].name);
  snprintf(options, sizeof options,
           "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt -DT=1 -DF32=1 -DF16=2 -DBF16=3 -DLANES=%d -DGROUP=1",
           lanes);
  int code;
  const char *source = all;
  void *program = cl->create_program_with_source(context, 1, &source, NULL, &code);
  assert_int_equal(cl->build_program(program, 1, &device, options, NULL, NULL), 0);
  free(all);
  free(text);
  return program;
}

static void run(const tigon_context *context, void *program, const struct function *f, int lanes) {
  const opencl_device *d = context->queue.state;
  const cl_api *cl = d->cl;
  char name[LINE];
  int code;
  snprintf(name, sizeof name, "%s_k%s", f->name, lanes > 1 ? "" : "1");
  void *kernel = cl->create_kernel(program, name, &code);
  void *memory[2];
  for (unsigned i = 0; i < 2; ++i) {
    memory[i] = cl->create_buffer(d->context, CL_MEM_READ_WRITE, sizeof x, NULL, &code);
    cl->set_kernel_arg(kernel, i, sizeof memory[i], &memory[i]);
  }
  const size_t items = COUNT / (size_t)lanes, local = 1;
  assert_int_equal(cl->enqueue_write_buffer(d->stream, memory[0], 1, 0, sizeof x, x, 0, NULL, NULL), 0);
  assert_int_equal(cl->enqueue_nd_range_kernel(d->stream, kernel, 1, NULL, &items, &local, 0, NULL, NULL), 0);
  assert_int_equal(cl->enqueue_read_buffer(d->stream, memory[1], 1, 0, sizeof y, y, 0, NULL, NULL), 0);
  for (int i = 0; i < 2; ++i) cl->release_mem_object(memory[i]);
  cl->release_kernel(kernel);
  compare(f, lanes == 1 ? "one" : lanes == 4 ? "of (4)" : "of (16)");
}

/* Every bit pattern of which the low ones are a few: all exponents, both signs, infinities, NaN and denormals. */
static void test_math(void **state) {
  const tigon_context *context = *state;
  const opencl_device *d = context->queue.state;
  for (uint32_t i = 0; i < COUNT; ++i) {
    const uint32_t word = i << 12 | (i * 2654435761u >> 20);
    memcpy(&x[i], &word, sizeof word);
  }
  x[0] = 0, x[1] = INFINITY, x[2] = -INFINITY, x[3] = NAN, x[4] = -0.0f, x[5] = 1, x[6] = -1;
  void *wide = build(d->cl, d->context, d->device, 16), *narrow = build(d->cl, d->context, d->device, 4);
  for (int i = 0; i < FUNCTIONS; ++i) {
    run(context, wide, &functions[i], 16);
    run(context, narrow, &functions[i], 4);
    run(context, narrow, &functions[i], 1);
  }
  d->cl->release_program(wide);
  d->cl->release_program(narrow);
}

int main(void) {
  tigon_context *context;
  if (tigon_context_create(&(tigon_context_desc){.device = "opencl"}, &context) != TIGON_OK) {
    printf("skipped: %s\n", tigon_last_error(NULL));
    return 77;
  }
  const tigon_precision precision = context->queue.backend->precision(&context->queue);
  const bool exact = precision.ulps == 0 && !precision.flushes;
  if (!exact) printf("skipped: the device's division is not the nearest, or it flushes\n");
  const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_math, context)};
  const int failed = exact ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
  tigon_context_destroy(context);
  return failed;
}
