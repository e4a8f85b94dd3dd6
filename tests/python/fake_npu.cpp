// A stand-in for torch_npu's C++ side: torch's PrivateUse1 device with memory of the runtime in tests/ascend/fake, which the host
// can read. Every operator but a few runs on the CPU on copies.
#include <ATen/EmptyTensor.h>
#include <ATen/CPUFunctions.h>
#include <ATen/ops/from_blob.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

extern "C" int aclrtMalloc(void **memory, size_t bytes, int policy);
extern "C" int aclrtSetDevice(int32_t device);

namespace {

constexpr auto npu = c10::DeviceType::PrivateUse1;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return npu; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {npu, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

// What tensors have is cut from one piece, because the runtime has room for few. Blocks of one size are used again.
struct Block {
  void *memory;
  size_t bytes;
};
std::mutex guarded;
std::map<size_t, std::vector<Block *>> spare;

void give_back(void *block) {
  const std::lock_guard<std::mutex> lock(guarded);
  if (block) spare[static_cast<Block *>(block)->bytes].push_back(static_cast<Block *>(block));
}

Block *take(size_t bytes) {
  constexpr size_t all = size_t(1) << 31;
  static char *begin = nullptr;
  static size_t used = 0;
  const std::lock_guard<std::mutex> lock(guarded);
  bytes = (bytes + 511) / 512 * 512;
  if (std::vector<Block *> &same = spare[bytes]; !same.empty()) {
    Block *block = same.back();
    same.pop_back();
    return block;
  }
  void *memory = begin;
  if (!begin) TORCH_CHECK(aclrtSetDevice(0) == 0 && aclrtMalloc(&memory, all, 0) == 0, "no memory of the device");
  begin = static_cast<char *>(memory);
  TORCH_CHECK(used + bytes <= all, "the device's memory is used up");
  used += bytes;
  return new Block{begin + used - bytes, bytes};
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    Block *block = bytes ? take(bytes) : nullptr;
    return {block ? block->memory : nullptr, block, give_back, c10::Device(npu, 0)};
  }
  void copy_data(void *to, const void *from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Allocator allocator;
REGISTER_ALLOCATOR(npu, &allocator);

const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(dtype), format);
}
at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, keys, c10::dtype_or_default(dtype));
}

// The same memory as a tensor of the CPU.
at::Tensor seen(const at::Tensor &t) {
  return t.is_cpu() ? t
                    : at::from_blob(t.data_ptr(), t.sizes(), t.strides(), t.options().device(at::kCPU).requires_grad(false));
}
at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool) {
  seen(to).copy_(seen(from));
  return to;
}
const at::Tensor &resize(const at::Tensor &self, c10::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  const at::Tensor made = at::detail::empty_generic(size, &allocator, keys, self.scalar_type(), format);
  at::TensorImpl *to = self.unsafeGetTensorImpl();
  const int64_t kept = std::min(self.numel(), made.numel());
  if (kept > 0) std::memcpy(made.data_ptr(), self.data_ptr(), static_cast<size_t>(kept) * self.element_size());
  to->set_storage_keep_dtype(made.storage());
  to->set_sizes_contiguous(size);
  return self;
}
at::Tensor copy_and_resize(const at::Tensor &from, const at::Tensor &to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}
at::Tensor as_strided(const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::cpu::as_strided(self, size, stride, offset);
}
at::Tensor view(const at::Tensor &self, c10::IntArrayRef size) { return at::cpu::view(self, size); }

void on_the_cpu(const c10::OperatorHandle &op, torch::jit::Stack *stack) { at::native::cpu_fallback(op, stack); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_and_resize);
  m.impl("resize_", resize);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>()); }

const bool registered = [] {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

}  // namespace
