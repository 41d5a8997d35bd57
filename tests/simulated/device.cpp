// An accelerator for tests, which has no hardware: torch's PrivateUse1 device.
//
// Its memory has two views. Tensors hold addresses of one that nobody may read: what takes them for CPU memory dies at once. The device's own
// operations use the other. Operations are done by torch's CPU kernels, at once; a copy that does not wait, to pinned host memory, is done as
// late as the stream allows, when somebody waits for the stream, so that who reads without waiting reads old numbers. Whatever makes the
// host wait is counted.

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include <ATen/ATen.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/view_cpu_dispatch.h>
#include <ATen/ops/_reshape_alias_cpu_dispatch.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace {

constexpr size_t CAPACITY = size_t(1) << 32;
constexpr auto KEY = c10::DeviceType::PrivateUse1;

std::recursive_mutex mutex;
char *unreadable, *readable;
std::map<size_t, std::vector<size_t>> unused;  // offsets by size
std::map<size_t, size_t> sizes;
size_t top = 0, in_use = 0;
std::set<const void*> pinned;
std::deque<std::function<void()>> stream;  // copies that nobody has waited for
std::string waits;                         // what made the host wait, one a line
int64_t num_async = 0;
thread_local c10::DeviceIndex current = 0;
thread_local c10::StreamId streams[2] = {0, 0};

void make_memory() {
    if (unreadable) return;
    const int file = memfd_create("device", 0);
    TORCH_CHECK(file >= 0 && ftruncate(file, CAPACITY) == 0, "no memory for the simulated device");
    unreadable = static_cast<char*>(mmap(nullptr, CAPACITY, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0));
    readable = static_cast<char*>(mmap(nullptr, CAPACITY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0));
    TORCH_CHECK(unreadable != MAP_FAILED && readable != MAP_FAILED, "no memory for the simulated device");
    close(file);
}

char* own_view(const void* address) { return readable + (static_cast<const char*>(address) - unreadable); }

void drain() {
    std::lock_guard<std::recursive_mutex> lock(mutex);
    for (; !stream.empty(); stream.pop_front()) stream.front()();
}

void wait(const std::string& why) {
    std::lock_guard<std::recursive_mutex> lock(mutex);
    waits += why + "\n";
    drain();
}

void release(void* address) {
    std::lock_guard<std::recursive_mutex> lock(mutex);
    const size_t offset = static_cast<char*>(address) - unreadable, size = sizes[offset];
    std::memset(readable + offset, 0xA5, size);  // what is read after it was freed is seen
    unused[size].push_back(offset);
    in_use -= size;
}

struct Memory final : c10::Allocator {
    c10::DataPtr allocate(size_t nbytes) override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        make_memory();
        if (!nbytes) return {nullptr, nullptr, &release, c10::Device(KEY, current)};
        const size_t size = (nbytes + 511) / 512 * 512;
        auto& free_ones = unused[size];
        in_use += size;
        size_t offset = top;
        if (free_ones.empty()) {
            top += size;
            TORCH_CHECK(top <= CAPACITY, "the simulated device is full");
            sizes[offset] = size;
        } else {
            offset = free_ones.back();
            free_ones.pop_back();
        }
        return {unreadable + offset, unreadable + offset, &release, c10::Device(KEY, current)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(own_view(to), own_view(from), n); }
} memory;

struct PinnedMemory final : c10::Allocator {
    static void give_back(void* address) {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        drain();  // as a caching allocator does not hand it out before the copy is done
        pinned.erase(address);
        std::free(address);
    }
    c10::DataPtr allocate(size_t nbytes) override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        void* address = std::malloc(nbytes ? nbytes : 1);
        pinned.insert(address);
        return {address, address, &give_back, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
    void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
} pinned_memory;

struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return 2; }
    void setCurrentDevice(c10::DeviceIndex index) const override { current = index; }
    c10::DeviceIndex getCurrentDevice() const override { return current; }
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override { return std::exchange(current, index); }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return std::exchange(current, index); }
    const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
    at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
    at::Device getDeviceFromPtr(void*) const override { return at::Device(KEY, current); }
    bool isPinnedPtr(const void* data) const override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        return pinned.count(data) != 0;
    }
    c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
    void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
        auto fresh = memory.allocate(nbytes);
        if (storage.nbytes() && nbytes)
            std::memcpy(own_view(fresh.get()), own_view(storage.data()), std::min(nbytes, storage.nbytes()));
        storage.set_data_ptr(std::move(fresh));
        storage.set_nbytes(nbytes);
    }
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return KEY; }
    c10::Device exchangeDevice(c10::Device d) const override { return {KEY, std::exchange(current, d.index())}; }
    c10::Device getDevice() const override { return {KEY, current}; }
    void setDevice(c10::Device d) const override { current = d.index(); }
    void uncheckedSetDevice(c10::Device d) const noexcept override { current = d.index(); }
    c10::Stream getStream(c10::Device d) const override { return c10::Stream(c10::Stream::UNSAFE, c10::Device(KEY, std::max<int>(d.index(), 0)), streams[std::max<int>(d.index(), 0)]); }
    c10::Stream getDefaultStream(c10::Device d) const override { return c10::Stream(c10::Stream::UNSAFE, d, 0); }
    c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return c10::Stream(c10::Stream::UNSAFE, d, 1); }
    c10::Stream getNewStream(c10::Device d, int) const override { return c10::Stream(c10::Stream::UNSAFE, d, 1); }
    c10::Stream exchangeStream(c10::Stream s) const override {
        const auto before = std::exchange(streams[s.device_index()], s.id());
        return c10::Stream(c10::Stream::UNSAFE, s.device(), before);
    }
    c10::DeviceIndex deviceCount() const noexcept override { return 2; }
    bool queryStream(const c10::Stream&) const override { return stream.empty(); }
    void synchronizeStream(const c10::Stream&) const override { wait("synchronizeStream"); }
    void synchronizeDevice(const c10::DeviceIndex) const override { wait("synchronizeDevice"); }
    void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override { *event = this_event(); }
    void block(void*, const c10::Stream&) const override {}
    bool queryEvent(void*) const override { return stream.empty(); }
    void synchronizeEvent(void*) const override { wait("synchronizeEvent"); }
    void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
    void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
    static void* this_event() { static int one; return &one; }
};

// ---- operations

at::Tensor seen_by_cpu(const at::Tensor& x) {
    if (!x.defined() || x.device().type() != KEY) return x;
    if (!x.storage().data()) return at::empty_strided(x.sizes(), x.strides(), x.options().device(at::kCPU));
    return at::from_blob(own_view(x.mutable_data_ptr()), x.sizes(), x.strides(), x.options().device(at::kCPU));
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
    const auto sizes_ = C10_AS_INTARRAYREF_SLOW(size), strides_ = C10_AS_INTARRAYREF_SLOW(stride);
    const auto type = c10::scalarTypeToTypeMeta(dtype.value_or(at::ScalarType::Float));
    const auto index = device && device->has_index() ? device->index() : current;
    const auto before = std::exchange(current, index);
    const size_t nbytes = at::detail::computeStorageNbytes(sizes_, strides_, type.itemsize());
    auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes, memory.allocate(nbytes), &memory, true);
    current = before;
    auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
    made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes_, strides_);
    return made;
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
    const auto like = at::empty(C10_AS_INTARRAYREF_SLOW(size), at::TensorOptions().dtype(dtype).device(at::kMeta), format);
    return empty_strided(size, like.sym_strides(), dtype, layout, device, pin);
}

at::Tensor on_device(const at::Tensor& found, c10::DeviceIndex index) {
    if (!found.defined() || found.device().type() == KEY) return found;
    auto made = empty_strided(found.sym_sizes(), found.sym_strides(), found.scalar_type(), {}, c10::Device(KEY, index), {});
    if (found.numel()) seen_by_cpu(made).copy_(found);
    return made;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
    const bool leaves = to.device().type() == c10::DeviceType::CPU, comes = from.device().type() == c10::DeviceType::CPU;
    if (leaves && non_blocking && pinned.count(to.storage().data())) {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        num_async++;
        stream.push_back([snapshot = seen_by_cpu(from).clone(), to]() { const_cast<at::Tensor&>(to).copy_(snapshot); });
        return to;
    }
    if (leaves) wait("copy to the host");
    if (comes && !non_blocking && from.numel() && !from.unsafeGetTensorImpl()->is_wrapped_number() && from.dim()) waits += "copy to the device\n";
    seen_by_cpu(to).copy_(seen_by_cpu(from));
    return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
    to.resize_(from.sizes());
    return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& x) {
    wait("item");
    return seen_by_cpu(x).item();
}

at::Tensor as_strided(const at::Tensor& x, c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<int64_t> offset) {
    return at::cpu::as_strided(x, size, stride, offset);
}

const at::Tensor& resize(const at::Tensor& x, c10::SymIntArrayRef size, std::optional<at::MemoryFormat>) {
    auto* impl = x.unsafeGetTensorImpl();
    const auto sizes_ = C10_AS_INTARRAYREF_SLOW(size);
    impl->set_sizes_contiguous(sizes_);
    const size_t needed = impl->numel() * x.itemsize() + x.storage_offset() * x.itemsize();
    if (x.storage().nbytes() < needed) Hooks().resizePrivateUse1Bytes(x.storage(), needed);
    return x;
}

at::Tensor& set_source(at::Tensor& x, at::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
    x.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
    x.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
    return x;
}

bool waits_by_its_nature(const std::string& name) {  // its result's size depends on numbers
    static const std::set<std::string> names = {"aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::equal", "aten::_assert_async"};
    return names.count(name) != 0;
}

// Any other operation: the CPU's, on the device's own view of the same memory.
void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const auto& schema = op.schema();
    if (waits_by_its_nature(schema.name())) wait(schema.name());
    const auto num_arguments = schema.arguments().size();
    const auto begin = stack->size() - num_arguments;
    std::vector<std::pair<at::Tensor, at::Tensor>> pairs;  // of ours and what the CPU got for it
    c10::DeviceIndex index = current;
    auto convert = [&](const at::Tensor& x) {
        if (!x.defined() || x.device().type() != KEY) return x;
        index = x.device().index();
        for (auto& [ours, theirs] : pairs)
            if (ours.is_same(x)) return theirs;
        pairs.emplace_back(x, seen_by_cpu(x));
        return pairs.back().second;
    };
    for (size_t i = 0; i < num_arguments; i++) {
        auto& value = (*stack)[begin + i];
        if (value.isTensor()) {
            value = convert(value.toTensor());
        } else if (value.isTensorList()) {
            auto list = c10::List<at::Tensor>();
            for (const at::Tensor& x : value.toTensorList().vec()) list.push_back(convert(x));
            value = list;
        } else if (value.isOptionalTensorList()) {
            auto list = c10::List<std::optional<at::Tensor>>();
            for (const std::optional<at::Tensor>& x : value.toOptionalTensorVector()) list.push_back(x ? std::optional<at::Tensor>(convert(*x)) : x);
            value = list;
        } else if (value.isDevice()) {
            if (value.toDevice().type() == KEY) index = std::max<int>(value.toDevice().index(), current), value = c10::Device(at::kCPU);
        }
    }
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    auto back = [&](const at::Tensor& found) {
        for (auto& [ours, theirs] : pairs)
            if (theirs.is_same(found)) {
                if (ours.sizes() != found.sizes()) {  // an out= that was resized
                    ours.resize_(found.sizes());
                    seen_by_cpu(ours).copy_(found);
                }
                return ours;
            }
        return on_device(found, index);
    };
    for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); i++) {
        auto& value = (*stack)[i];
        if (value.isTensor()) {
            value = back(value.toTensor());
        } else if (value.isTensorList()) {
            auto list = c10::List<at::Tensor>();
            for (const at::Tensor& x : value.toTensorList().vec()) list.push_back(back(x));
            value = list;
        }
    }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
    m.impl("empty.memory_format", empty);
    m.impl("empty_strided", empty_strided);
    m.impl("as_strided", as_strided);
    m.impl("view", TORCH_FN(at::cpu::view));
    m.impl("_reshape_alias", TORCH_FN(at::cpu::_reshape_alias));
    m.impl("resize_", resize);
    m.impl("set_.source_Storage_storage_offset", set_source);
    m.impl("_copy_from", copy_from);
    m.impl("_copy_from_and_resize", copy_from_and_resize);
    m.impl("_local_scalar_dense", local_scalar);
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

extern "C" {
void simulated_begin() {
    c10::SetAllocator(KEY, &memory);
    at::RegisterPrivateUse1HooksInterface(new Hooks());
    make_memory();
}
uintptr_t simulated_own_view(uintptr_t address) { return reinterpret_cast<uintptr_t>(own_view(reinterpret_cast<void*>(address))); }
int simulated_waits(char* into, int size) {
    std::lock_guard<std::recursive_mutex> lock(mutex);
    const int length = std::min<int>(size, waits.size());
    std::memcpy(into, waits.data(), length);
    waits.clear();
    return length;
}
int64_t simulated_async_copies() { return std::exchange(num_async, 0); }
int64_t simulated_memory() { return in_use; }
int simulated_device() { return current; }
void simulated_set_device(int index) { current = index; }
}
