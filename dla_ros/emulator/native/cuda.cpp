// A stand-in for libcuda.so.1 on machines without a GPU: device memory, streams as ordered queues
// on threads, events, host functions and kernels compiled for the host.
//
// It is a sanitizer too. Every handle and range is checked, and pinned memory is mapped twice: the
// device's side always works, the host's side is protected from the moment a copy is queued until
// the host has synchronized with it, so that a read or write too early is caught as it happens.
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <set>

#include "emulator.hpp"

EMULATOR_CONTROL("CUDA")

namespace {

using emulator::ledger;
using Clock = std::chrono::steady_clock;
using Pointer = std::uint64_t;

enum Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
};

struct Status {
  int number;
  const char* name;
  const char* text;
};

constexpr Status kStatuses[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "PTX was compiled with an unsupported toolchain"},
    {302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "shared object symbol not found"},
    {303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "shared object initialization failed"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "incompatible texturing mode"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "driver and kernel module do not match"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility not supported"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "would depend on a capturing stream"},
    {911, "CUDA_ERROR_EXTERNAL_DEVICE", "an async error occurred in an external device"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

constexpr std::size_t kPage = 4096;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Regions that the signal handler knows, in an array that needs no lock. `host` is what user code
// touches: pinned memory with a copy under way, or memory that was freed.
struct Guard {
  std::atomic<Pointer> host{0};
  std::atomic<std::size_t> size{0};
  std::atomic<bool> freed{false};
  std::atomic<int> trapped{0};
};

constexpr int kGuards = 4096;
Guard* const guards = new Guard[kGuards];
struct sigaction previous_handler;

void on_fault(int number, siginfo_t* info, void* context) {
  const Pointer address = reinterpret_cast<Pointer>(info->si_addr);
  for (int i = 0; i < kGuards; ++i) {
    const Pointer host = guards[i].host;
    if (host && address >= host && address < host + guards[i].size) {
      guards[i].trapped++;
      // The access is let through, so that the program can go on to be told of it.
      mprotect(reinterpret_cast<void*>(host), guards[i].size, PROT_READ | PROT_WRITE);
      return;
    }
  }
  if (previous_handler.sa_flags & SA_SIGINFO && previous_handler.sa_sigaction) {
    previous_handler.sa_sigaction(number, info, context);
  } else if (previous_handler.sa_handler != SIG_DFL && previous_handler.sa_handler != SIG_IGN) {
    previous_handler.sa_handler(number);
  } else {
    signal(SIGSEGV, SIG_DFL);
  }
}

int guard(Pointer host, std::size_t size, bool freed) {
  static std::atomic<int> next{0};
  for (int tries = 0; tries < kGuards; ++tries) {
    const int i = next++ % kGuards;
    Pointer none = 0;
    if (guards[i].host.compare_exchange_strong(none, host)) {
      guards[i].size = size;
      guards[i].freed = freed;
      guards[i].trapped = 0;
      return i;
    }
  }
  return -1;
}

struct Stream;

struct Memory {
  std::size_t size, mapped;
  Pointer alias = 0;  // The device's side of pinned memory; 0 for device memory.
  int guard = -1;
  Stream* stream = nullptr;  // Of its last use; for pinned memory, until the host has
  std::uint64_t ticket = 0;  // synchronized with it. `ticket` is its place in that stream.
};

struct Op {
  std::function<void()> work;
  std::uint64_t ticket;
};

struct Stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Op> queue;
  std::uint64_t queued = 0, done = 0;
  bool capturing = false, ending = false;
  std::thread thread;

  Stream() : thread([this] { run(); }) {}

  void run() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ending || !queue.empty(); });
      if (queue.empty()) return;
      Op op = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      op.work();
      lock.lock();
      done = op.ticket;
      changed.notify_all();
    }
  }

  std::uint64_t push(std::function<void()> work) {
    std::lock_guard<std::mutex> lock(mutex);
    queue.push_back({std::move(work), ++queued});
    changed.notify_all();
    return queued;
  }

  bool reached(std::uint64_t ticket) {
    std::lock_guard<std::mutex> lock(mutex);
    return done >= ticket;
  }

  bool idle() {
    std::lock_guard<std::mutex> lock(mutex);
    return done == queued;
  }

  std::uint64_t wait() {
    std::unique_lock<std::mutex> lock(mutex);
    const std::uint64_t last = queued;
    changed.wait(lock, [&] { return done >= last; });
    return last;
  }

  void end() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      ending = true;
      changed.notify_all();
    }
    thread.join();
  }
};

struct Event {
  Stream* stream = nullptr;
  std::uint64_t ticket = 0;
  std::shared_ptr<Clock::time_point> time = std::make_shared<Clock::time_point>();
  std::shared_ptr<std::atomic<bool>> done = std::make_shared<std::atomic<bool>>(true);
  bool timing = true;
};

struct Module {
  void* library;
  Stream* stream = nullptr;  // Of the last launch, and its place in that stream.
  std::uint64_t ticket = 0;
};

struct Function {
  Module* module;
  void (*run)(void**, const void*, const void*);
  std::vector<std::size_t> sizes;
};

struct Dim {
  unsigned x, y, z;
};

// Everything alive. One lock: the stand-in need not be fast, and user code calls it rarely.
struct State {
  std::recursive_mutex mutex;
  bool initialized = false;
  int context = 0;  // How often the primary context is retained.
  std::map<Pointer, Memory> device, pinned;
  std::deque<std::pair<Pointer, int>> freed;  // Kept unreadable for a while.
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::map<Module*, std::map<std::string, Function*>> modules;
  std::set<Function*> functions;
  std::atomic<int> delay_us{0};
};

State& state() {
  static State& made = *new State;
  return made;
}

// Whether the primary context is current in this thread. There is one device, so one context.
thread_local bool current = false;
// Work of libcudla.so.1 on the user's behalf: not counted, not failed, not in the ledger.
thread_local int internal = 0;

void* const kContext = reinterpret_cast<void*>(0x11);
constexpr std::size_t kQuarantine = 64;

int enter(const char* call, bool needs_context = true) {
  if (internal) return kSuccess;
  if (int status = ledger().enter(call)) return status;
  if (!state().initialized) return kNotInitialized;
  if (needs_context && (!current || !state().context)) {
    ledger().violate("current-context", std::string(call) + " without a current context");
    return kInvalidContext;
  }
  return kSuccess;
}

// The calls that release something do so even when told to fail: their status may be that of
// earlier work, and nobody could release it again.
int enter_release(const char* call) { return internal ? kSuccess : ledger().enter(call); }

void born(const char* kind) {
  if (!internal) ledger().born(kind);
}

void died(const char* kind) {
  if (!internal) ledger().died(kind);
}

std::map<Pointer, Memory>::iterator find(std::map<Pointer, Memory>& memory, Pointer address) {
  auto after = memory.upper_bound(address);
  if (after == memory.begin()) return memory.end();
  auto found = std::prev(after);
  return address < found->first + found->second.size ? found : memory.end();
}

bool inside(const std::map<Pointer, Memory>::iterator& found, Pointer address, std::size_t size) {
  return address + size <= found->first + found->second.size;
}

std::string text(Pointer address, std::size_t size) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%zu bytes at 0x%llx", size,
                static_cast<unsigned long long>(address));
  return buffer;
}

bool was_freed(Pointer address) {
  for (const auto& [start, index] : state().freed) {
    if (address >= start && address < start + guards[index].size) return true;
  }
  return false;
}

// Checks a device range, its owner's side; returns false after saying what is wrong.
bool check_device(const char* call, Pointer address, std::size_t size) {
  auto found = find(state().device, address);
  if (found != state().device.end()) {
    if (inside(found, address, size)) return true;
    ledger().violate("bounds", std::string(call) + " of " + text(address, size) + " in a buffer of " +
                                   text(found->first, found->second.size));
  } else if (was_freed(address)) {
    ledger().violate("use-after-free", std::string(call) + " of " + text(address, size));
  } else {
    ledger().violate("bounds", std::string(call) + " of " + text(address, size) +
                                   ", which is no device memory");
  }
  return false;
}

Stream* find_stream(void* handle) {
  auto* stream = static_cast<Stream*>(handle);
  return state().streams.count(stream) ? stream : nullptr;
}

void collect_traps(Memory& memory, Pointer host) {
  if (memory.guard < 0) return;
  Guard& guard = guards[memory.guard];
  if (guard.trapped.exchange(0)) {
    ledger().violate("pinned-before-event",
                     "the host touched " + text(host, memory.size) +
                         " before it synchronized with the copy on it");
  }
}

// Lets the host touch what it has synchronized with.
void observed(Stream* stream, std::uint64_t ticket) {
  for (auto& [host, memory] : state().pinned) {
    if (memory.stream != stream || memory.ticket > ticket) continue;
    collect_traps(memory, host);
    memory.stream = nullptr;
    mprotect(reinterpret_cast<void*>(host), memory.mapped, PROT_READ | PROT_WRITE);
  }
}

bool pending(Stream* stream, std::uint64_t ticket) {
  return state().streams.count(stream) && !stream->reached(ticket);
}

// Notes that work in a stream uses the device memory at an address, if there is any.
void use(Pointer address, Stream* stream, std::uint64_t ticket) {
  auto found = find(state().device, address);
  if (found == state().device.end()) return;
  found->second.stream = stream;
  found->second.ticket = ticket;
}

std::function<void()> delayed(std::function<void()> work) {
  return [work = std::move(work)] {
    if (int us = state().delay_us) std::this_thread::sleep_for(std::chrono::microseconds(us));
    work();
  };
}

// Queues work that reads (or writes) a host range; the range stays protected until observed.
int queue_copy(const char* call, Stream* stream, Pointer host, Pointer device, std::size_t size,
               bool host_reads, const std::function<void(void*)>& copy) {
  auto found = find(state().pinned, host);
  if (found == state().pinned.end() || !inside(found, host, size)) {
    ledger().violate("pageable-copy",
                     std::string(call) + " with " + text(host, size) + ", which is not pinned");
    stream->wait();
    copy(reinterpret_cast<void*>(host));
    return kSuccess;
  }
  Memory& memory = found->second;
  void* alias = reinterpret_cast<void*>(memory.alias + (host - found->first));
  const std::uint64_t ticket = stream->push(delayed([=] { copy(alias); }));
  use(device, stream, ticket);
  if (!internal) {
    memory.stream = stream;
    memory.ticket = ticket;
    mprotect(reinterpret_cast<void*>(found->first), memory.mapped,
             host_reads ? PROT_READ : PROT_NONE);
  }
  return kSuccess;
}

// Something is released while work on it is queued in a stream; goes on when that is done.
void busy(const char* call, const char* kind, Stream* stream) {
  if (!ledger().dead()) {
    ledger().violate("in-flight", std::string(call) + " of a " + kind + " with work in flight");
  } else if (stream) {
    stream->wait();
  }
}

void forget_module(std::map<Module*, std::map<std::string, Function*>>::iterator found) {
  for (auto& [name, function] : found->second) {
    state().functions.erase(function);
    delete function;
  }
  dlclose(found->first->library);
  delete found->first;
  state().modules.erase(found);
}

}  // namespace

// Control

EXPORT void emulator_delay(int microseconds) { state().delay_us = microseconds; }
EXPORT void emulator_internal(int change) { internal += change; }
EXPORT void emulator_collect() {
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  for (auto& [host, memory] : state().pinned) collect_traps(memory, host);
  for (const auto& [start, index] : state().freed) {
    if (guards[index].trapped.exchange(0)) {
      ledger().violate("use-after-free", "the host or a kernel touched " + text(start, guards[index].size));
    }
  }
}

// Driver

EXPORT int cuInit(unsigned) {
  if (int status = ledger().enter("cuInit")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!state().initialized) {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous_handler);
    state().initialized = true;
  }
  return kSuccess;
}

EXPORT int cuDriverGetVersion(int* version) {
  if (int status = ledger().enter("cuDriverGetVersion")) return status;
  *version = 13000;
  return kSuccess;
}

EXPORT int cuGetErrorName(int number, const char** name) {
  for (const Status& status : kStatuses) {
    if (status.number == number) return *name = status.name, kSuccess;
  }
  *name = nullptr;
  return kInvalidValue;
}

EXPORT int cuGetErrorString(int number, const char** description) {
  for (const Status& status : kStatuses) {
    if (status.number == number) return *description = status.text, kSuccess;
  }
  *description = nullptr;
  return kInvalidValue;
}

// Device and context

EXPORT int cuDeviceGetCount(int* count) {
  if (int status = enter("cuDeviceGetCount", false)) return status;
  *count = 1;
  return kSuccess;
}

EXPORT int cuDeviceGet(int* device, int ordinal) {
  if (int status = enter("cuDeviceGet", false)) return status;
  if (ordinal != 0) return kInvalidDevice;
  *device = 0;
  return kSuccess;
}

EXPORT int cuDeviceGetName(char* name, int size, int device) {
  if (int status = enter("cuDeviceGetName", false)) return status;
  if (device != 0) return kInvalidDevice;
  emulator::copy_text("emulated GPU", name, size);
  return kSuccess;
}

EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (int status = enter("cuDeviceGetAttribute", false)) return status;
  if (device != 0) return kInvalidDevice;
  // As on AGX Orin: integrated, mappable host memory, unified addressing, compute capability 8.7.
  static const std::map<int, int> values = {{18, 1}, {19, 1}, {41, 1}, {75, 8}, {76, 7}};
  auto found = values.find(attribute);
  *value = found == values.end() ? 0 : found->second;
  return kSuccess;
}

EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (int status = enter("cuDevicePrimaryCtxRetain", false)) return status;
  if (device != 0) return kInvalidDevice;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  ++state().context;
  *context = kContext;
  born("primary context");
  return kSuccess;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  const int status = enter_release("cuDevicePrimaryCtxRelease");
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (device != 0) return kInvalidDevice;
  if (!state().context) return kInvalidContext;
  died("primary context");
  if (--state().context == 0 && !internal) {
    const std::size_t left = state().device.size() + state().pinned.size() +
                             state().streams.size() + state().events.size() +
                             state().modules.size();
    if (left) {
      ledger().violate("context-last", "the primary context was released before " +
                                           std::to_string(left) + " of its objects");
    }
  }
  return status;
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (device != 0) return kInvalidDevice;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  *flags = 0;
  *active = state().context > 0;
  return kSuccess;
}

EXPORT int cuCtxSetCurrent(void* context) {
  if (int status = enter("cuCtxSetCurrent", false)) return status;
  if (context && (context != kContext || !state().context)) return kInvalidContext;
  current = context != nullptr;
  return kSuccess;
}

EXPORT int cuCtxGetCurrent(void** context) {
  *context = current && state().context ? kContext : nullptr;
  return kSuccess;
}

// Streams

EXPORT int cuStreamCreate(Stream** stream, unsigned) {
  if (int status = enter("cuStreamCreate")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  *stream = new Stream;
  state().streams.insert(*stream);
  born("stream");
  return kSuccess;
}

EXPORT int cuStreamDestroy_v2(Stream* handle) {
  const int status = enter_release("cuStreamDestroy");
  {
    std::lock_guard<std::recursive_mutex> lock(state().mutex);
    if (!find_stream(handle)) return kInvalidHandle;
    if (!handle->idle()) busy("cuStreamDestroy", "stream", nullptr);
    state().streams.erase(handle);
    died("stream");
  }
  const std::uint64_t last = handle->wait();
  handle->end();
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  observed(handle, last);
  for (Event* event : state().events) {
    if (event->stream == handle) event->stream = nullptr;
  }
  delete handle;
  return status;
}

EXPORT int cuStreamSynchronize(void* handle) {
  if (int status = enter("cuStreamSynchronize")) return status;
  Stream* stream;
  {
    std::lock_guard<std::recursive_mutex> lock(state().mutex);
    if (!(stream = find_stream(handle))) return kInvalidHandle;
  }
  const std::uint64_t last = stream->wait();
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  observed(stream, last);
  return kSuccess;
}

EXPORT int cuStreamQuery(void* handle) {
  if (int status = enter("cuStreamQuery")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Stream* stream = find_stream(handle);
  if (!stream) return kInvalidHandle;
  if (!stream->idle()) return kNotReady;
  observed(stream, stream->wait());
  return kSuccess;
}

EXPORT int cuStreamBeginCapture_v2(void* handle, int) {
  if (int status = enter("cuStreamBeginCapture")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Stream* stream = find_stream(handle);
  if (!stream) return kInvalidHandle;
  stream->capturing = true;
  return kSuccess;
}

EXPORT int cuStreamEndCapture(void* handle, void** graph) {
  if (int status = enter("cuStreamEndCapture")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Stream* stream = find_stream(handle);
  if (!stream) return kInvalidHandle;
  stream->capturing = false;
  *graph = nullptr;
  return kSuccess;
}

EXPORT int cuStreamIsCapturing(void* handle, int* capturing) {
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Stream* stream = find_stream(handle);
  if (!stream) return kInvalidHandle;
  *capturing = stream->capturing;
  return kSuccess;
}

EXPORT int cuLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
  if (int status = enter("cuLaunchHostFunc")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Stream* stream = find_stream(handle);
  if (!stream) return kInvalidHandle;
  stream->push([=] { function(data); });
  return kSuccess;
}

// Events

EXPORT int cuEventCreate(Event** event, unsigned flags) {
  if (int status = enter("cuEventCreate")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  *event = new Event;
  (*event)->timing = !(flags & 2);
  state().events.insert(*event);
  born("event");
  return kSuccess;
}

EXPORT int cuEventDestroy_v2(Event* event) {
  const int status = enter_release("cuEventDestroy");
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!state().events.erase(event)) return kInvalidHandle;
  if (!*event->done) busy("cuEventDestroy", "event", nullptr);
  delete event;
  died("event");
  return status;
}

EXPORT int cuEventRecord(Event* event, void* handle) {
  if (int status = enter("cuEventRecord")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Stream* stream = find_stream(handle);
  if (!stream || !state().events.count(event)) return kInvalidHandle;
  auto time = event->time = std::make_shared<Clock::time_point>();
  auto done = event->done = std::make_shared<std::atomic<bool>>(false);
  event->stream = stream;
  event->ticket = stream->push([=] {
    *time = Clock::now();
    *done = true;
  });
  return kSuccess;
}

EXPORT int cuEventQuery(Event* event) {
  if (int status = enter("cuEventQuery")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!state().events.count(event)) return kInvalidHandle;
  if (!*event->done) return kNotReady;
  if (event->stream) observed(event->stream, event->ticket);
  return kSuccess;
}

EXPORT int cuEventElapsedTime_v2(float* milliseconds, Event* start, Event* end) {
  if (int status = enter("cuEventElapsedTime")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!state().events.count(start) || !state().events.count(end)) return kInvalidHandle;
  if (!start->timing || !end->timing) return kInvalidHandle;
  if (!*start->done || !*end->done) return kNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
  return kSuccess;
}

// Memory

EXPORT int cuMemAlloc_v2(Pointer* address, std::size_t size) {
  if (int status = enter("cuMemAlloc")) return status;
  if (!size) return kInvalidValue;
  const std::size_t mapped = whole_pages(size);
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return kOutOfMemory;
  std::memset(memory, 0xA5, mapped);  // Nobody may count on zeros.
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  *address = reinterpret_cast<Pointer>(memory);
  state().device[*address] = Memory{size, mapped};
  born("device buffer");
  return kSuccess;
}

EXPORT int cuMemFree_v2(Pointer address) {
  const int status = enter_release("cuMemFree");
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  auto found = state().device.find(address);
  if (found == state().device.end()) {
    if (was_freed(address)) ledger().violate("use-after-free", "cuMemFree of " + text(address, 0));
    return kInvalidValue;
  }
  if (pending(found->second.stream, found->second.ticket)) {
    busy("cuMemFree", "device buffer", found->second.stream);
  }
  const std::size_t mapped = found->second.mapped;
  state().device.erase(found);
  died("device buffer");
  void* memory = reinterpret_cast<void*>(address);
  madvise(memory, mapped, MADV_DONTNEED);
  mprotect(memory, mapped, PROT_NONE);
  state().freed.push_back({address, guard(address, mapped, true)});
  if (state().freed.size() > kQuarantine) {
    const auto [oldest, index] = state().freed.front();
    state().freed.pop_front();
    const std::size_t size = guards[index].size;
    guards[index].host = 0;
    munmap(reinterpret_cast<void*>(oldest), size);
  }
  return status;
}

EXPORT int cuMemHostAlloc(void** address, std::size_t size, unsigned) {
  if (int status = enter("cuMemHostAlloc")) return status;
  if (!size) return kInvalidValue;
  const std::size_t mapped = whole_pages(size);
  const int file = memfd_create("dla_ros_pinned", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, mapped)) return kOutOfMemory;
  void* host = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  void* alias = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (host == MAP_FAILED || alias == MAP_FAILED) return kOutOfMemory;
  std::memset(alias, 0xA5, mapped);
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Memory memory{size, mapped};
  memory.alias = reinterpret_cast<Pointer>(alias);
  memory.guard = guard(reinterpret_cast<Pointer>(host), mapped, false);
  state().pinned[reinterpret_cast<Pointer>(host)] = memory;
  *address = host;
  born("pinned buffer");
  return kSuccess;
}

EXPORT int cuMemFreeHost(void* host) {
  const int status = enter_release("cuMemFreeHost");
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  auto found = state().pinned.find(reinterpret_cast<Pointer>(host));
  if (found == state().pinned.end()) return kInvalidValue;
  Memory& memory = found->second;
  collect_traps(memory, found->first);
  if (pending(memory.stream, memory.ticket)) {
    busy("cuMemFreeHost", "pinned buffer", nullptr);
    memory.stream->wait();
  }
  if (memory.guard >= 0) guards[memory.guard].host = 0;
  munmap(host, memory.mapped);
  munmap(reinterpret_cast<void*>(memory.alias), memory.mapped);
  state().pinned.erase(found);
  died("pinned buffer");
  return status;
}

EXPORT int cuMemHostGetDevicePointer_v2(Pointer* address, void* host, unsigned) {
  if (int status = enter("cuMemHostGetDevicePointer")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  auto found = find(state().pinned, reinterpret_cast<Pointer>(host));
  if (found == state().pinned.end()) return kInvalidValue;
  *address = found->second.alias + (reinterpret_cast<Pointer>(host) - found->first);
  return kSuccess;
}

EXPORT int cuPointerGetAttribute(void* data, int attribute, Pointer address) {
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  auto found = find(state().device, address);
  if (found == state().device.end()) return kInvalidValue;
  switch (attribute) {
    case 2: *static_cast<unsigned*>(data) = 2; return kSuccess;                     // MEMORY_TYPE
    case 8: *static_cast<unsigned*>(data) = 0; return kSuccess;                     // IS_MANAGED
    case 11: *static_cast<Pointer*>(data) = found->first; return kSuccess;          // RANGE_START
    case 12: *static_cast<std::size_t*>(data) = found->second.size; return kSuccess;  // RANGE_SIZE
    default: return kInvalidValue;
  }
}

EXPORT int cuMemcpyHtoDAsync_v2(Pointer target, const void* source, std::size_t size,
                                void* handle) {
  if (int status = enter("cuMemcpyHtoDAsync")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Stream* stream = find_stream(handle);
  if (!stream) return kInvalidHandle;
  if (!check_device("cuMemcpyHtoDAsync", target, size)) return kInvalidValue;
  return queue_copy("cuMemcpyHtoDAsync", stream, reinterpret_cast<Pointer>(source), target,
                    size, true, [=](void* host) { std::memcpy(reinterpret_cast<void*>(target), host, size); });
}

EXPORT int cuMemcpyDtoHAsync_v2(void* target, Pointer source, std::size_t size, void* handle) {
  if (int status = enter("cuMemcpyDtoHAsync")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Stream* stream = find_stream(handle);
  if (!stream) return kInvalidHandle;
  if (!check_device("cuMemcpyDtoHAsync", source, size)) return kInvalidValue;
  return queue_copy("cuMemcpyDtoHAsync", stream, reinterpret_cast<Pointer>(target), source,
                    size, false, [=](void* host) { std::memcpy(host, reinterpret_cast<void*>(source), size); });
}

EXPORT int cuMemcpyDtoH_v2(void* target, Pointer source, std::size_t size) {
  if (int status = enter("cuMemcpyDtoH")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!check_device("cuMemcpyDtoH", source, size)) return kInvalidValue;
  std::memcpy(target, reinterpret_cast<void*>(source), size);
  return kSuccess;
}

EXPORT int cuMemsetD8Async(Pointer target, unsigned char value, std::size_t size, void* handle) {
  if (int status = enter("cuMemsetD8Async")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Stream* stream = find_stream(handle);
  if (!stream) return kInvalidHandle;
  if (!check_device("cuMemsetD8Async", target, size)) return kInvalidValue;
  use(target, stream, stream->push(delayed([=] {
        std::memset(reinterpret_cast<void*>(target), value, size);
      })));
  return kSuccess;
}

// Kernels

EXPORT int cuModuleLoadData(Module** module, const void* image) {
  if (int status = enter("cuModuleLoadData")) return status;
  const char* bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, "EMUKERNL", 8)) return kInvalidImage;
  std::uint64_t size;
  std::memcpy(&size, bytes + 8, 8);
  // A file of its own name: dlopen takes equal names for the same library.
  char path[] = "/tmp/dla_ros_kernel_XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) return kOutOfMemory;
  const bool written = write(file, bytes + 16, size) == static_cast<ssize_t>(size);
  close(file);
  void* library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  unlink(path);
  if (!library) return kInvalidImage;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  *module = new Module{library, nullptr, 0};
  state().modules[*module];
  born("module");
  return kSuccess;
}

EXPORT int cuModuleUnload(Module* module) {
  const int status = enter_release("cuModuleUnload");
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  auto found = state().modules.find(module);
  if (found == state().modules.end()) return kInvalidHandle;
  if (pending(module->stream, module->ticket)) busy("cuModuleUnload", "module", module->stream);
  forget_module(found);
  died("module");
  return status;
}

EXPORT int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  if (int status = enter("cuModuleGetFunction")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  auto found = state().modules.find(module);
  if (found == state().modules.end()) return kInvalidHandle;
  const std::string symbol = name;
  void* run = dlsym(module->library, ("emulated_run_" + symbol).c_str());
  void* sizes = dlsym(module->library, ("emulated_sizes_" + symbol).c_str());
  if (!run || !sizes) return kNotFound;
  std::size_t buffer[64];
  const int count = reinterpret_cast<int (*)(std::size_t*)>(sizes)(buffer);
  auto*& made = found->second[symbol];
  if (!made) {
    made = new Function{module,
                        reinterpret_cast<void (*)(void**, const void*, const void*)>(run),
                        {buffer, buffer + count}};
    state().functions.insert(made);
  }
  *function = made;
  return kSuccess;
}

EXPORT int cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void* handle, void** values,
                          void**) {
  if (int status = enter("cuLaunchKernel")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Stream* stream = find_stream(handle);
  if (!stream || !state().functions.count(function)) return kInvalidHandle;
  const std::uint64_t threads = static_cast<std::uint64_t>(bx) * by * bz;
  if (!gx || !gy || !gz || !threads || threads > 1024 || gy > 65535 || gz > 65535 || shared) {
    return kInvalidValue;
  }
  std::vector<std::vector<char>> copies;
  for (std::size_t i = 0; i < function->sizes.size(); ++i) {
    const char* value = static_cast<const char*>(values[i]);
    copies.emplace_back(value, value + function->sizes[i]);
  }
  const std::uint64_t ticket = stream->push(delayed([run = function->run, copies, grid = Dim{gx, gy, gz},
                        block = Dim{bx, by, bz}] {
    std::vector<void*> pointers;
    for (const auto& copy : copies) pointers.push_back(const_cast<char*>(copy.data()));
    run(pointers.data(), &grid, &block);
  }));
  function->module->stream = stream;
  function->module->ticket = ticket;
  for (const auto& copy : copies) {
    Pointer address;
    if (copy.size() != sizeof address) continue;
    std::memcpy(&address, copy.data(), sizeof address);
    use(address, stream, ticket);
  }
  return kSuccess;
}

// How cuda.bindings finds all of the above.
EXPORT int cuGetProcAddress_v2(const char* name, void** function, int, std::uint64_t, int* found) {
  static void* const self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *function = nullptr;
  for (const char* suffix : {"_v2", ""}) {
    void* symbol = dlsym(self, (std::string(name) + suffix).c_str());
    Dl_info mine, its;
    // Not what some other library of the process has under this name.
    if (symbol && dladdr(symbol, &its) && dladdr(reinterpret_cast<void*>(&cuInit), &mine) &&
        mine.dli_fbase == its.dli_fbase) {
      *function = symbol;
      break;
    }
  }
  if (found) *found = *function ? 0 : 1;
  return *function ? kSuccess : kNotFound;
}

EXPORT int cuGetProcAddress(const char* name, void** function, int version, std::uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
