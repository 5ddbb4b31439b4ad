// A stand-in for libcudla.so.1 in hybrid mode. It runs an emulated loadable in stream order on
// whatever driver is loaded, a real one or the stand-in: copy the inputs to the host, run the
// network there (in Python, by onnxruntime), copy the outputs back. And it enforces the rules of
// cuDLA's documentation, where the hardware would be undefined, crash, or say "13".
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>

#include "emulator.hpp"

EMULATOR_CONTROL("cuDLA")

namespace {

using emulator::ledger;
using Pointer = std::uint64_t;

enum Status {
  kSuccess = 0,
  kInvalidParam = 1,
  kOutOfResources = 2,
  kInvalidAddress = 4,
  kCuda = 6,
  kUmd = 7,
  kInvalidDevice = 8,
  kInvalidAttribute = 9,
  kMemoryRegistered = 11,
  kInvalidModule = 12,
  kUnsupportedOperation = 13,
  kDriverNotFound = 15,
  kEngineTimeout = 0x40000006,
};

struct Descriptor {
  char name[81];
  std::uint64_t size, n, c, h, w;
  std::uint8_t data_format, data_type, data_category, pixel_format, pixel_mapping;
  std::uint32_t stride[8];
};
static_assert(sizeof(Descriptor) == 168);

struct Task {
  void* module;
  Pointer** outputs;
  std::uint32_t output_count, input_count;
  Pointer** inputs;
  void *wait, *signal;
};
static_assert(sizeof(Task) == 48);

union Attribute {
  std::uint32_t count;
  Descriptor* descriptors;
};

union DeviceAttribute {
  std::uint8_t unified;
  std::uint32_t version;
};

// An emulated loadable: this header, the descriptors of inputs then outputs, then what the
// network's runner needs.
struct Header {
  char magic[8];
  std::uint32_t inputs, outputs;
  std::uint64_t payload;
};
constexpr char kMagic[] = "DLAEMUL1";
constexpr int kCores = 2, kHandles = 16;
constexpr std::uint32_t kDeviceVersion = 2, kLongestTimeout = 1000000;
constexpr std::uint64_t kVersion = 1005000;

struct Device;

struct Module {
  int number;
  Device* device;
  std::vector<Descriptor> inputs, outputs;
};

struct Registration {
  Pointer device_pointer;
  std::size_t size;
  std::atomic<int> in_flight{0};
};

struct Device {
  int core;
  Module* module = nullptr;
  std::map<Pointer, Registration*> registered;  // By the pointer that registering returned.
  std::uint32_t timeout_ms = 30000;
  std::atomic<int> in_flight{0};
  std::atomic<int> last_error{0};  // Of the most recent task,
  std::atomic<int> deferred{0};    // and still to be returned by any other call.
};

// What is to go wrong in a task to come.
struct TaskFault {
  int skip;
  int status;
  int hang;  // 1: until the task timeout; 2: until emulator_release(), as firmware that died.
};

struct Run {
  Device* device;
  Module* module;
  std::vector<Registration*> used;
  std::vector<void*> inputs, outputs;  // Pinned copies.
  std::atomic<bool> busy{false};
};

using Load = int (*)(int module, const void* payload, std::uint64_t size);
using Unload = void (*)(int module);
using Infer = int (*)(int module, void** inputs, void** outputs);

struct State {
  std::recursive_mutex mutex;
  std::set<Device*> devices;
  std::set<Module*> modules;
  std::vector<TaskFault> faults;
  std::mutex hang_mutex;
  std::condition_variable released;
  int round = 0;
  Pointer next_registration = 0xD1A0000000000000;
  int next_module = 1;
  Load load = nullptr;
  Unload unload = nullptr;
  Infer infer = nullptr;
};

State& state() {
  static State& made = *new State;
  return made;
}

// The driver's functions; the same names in the real one and in the stand-in.
struct Driver {
  int (*get_current)(void**);
  int (*primary_state)(int, unsigned*, int*);
  int (*pointer_attribute)(void*, int, Pointer);
  int (*capturing)(void*, int*);
  int (*host_alloc)(void**, std::size_t, unsigned);
  int (*host_free)(void*);
  int (*to_host)(void*, Pointer, std::size_t, void*);
  int (*to_device)(Pointer, const void*, std::size_t, void*);
  int (*host_function)(void*, void (*)(void*), void*);
  void (*internal)(int);

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    auto get = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          library ? dlsym(library, name) : nullptr);
    };
    get(get_current, "cuCtxGetCurrent");
    get(primary_state, "cuDevicePrimaryCtxGetState");
    get(pointer_attribute, "cuPointerGetAttribute");
    get(capturing, "cuStreamIsCapturing");
    get(host_alloc, "cuMemHostAlloc");
    get(host_free, "cuMemFreeHost");
    get(to_host, "cuMemcpyDtoHAsync_v2");
    get(to_device, "cuMemcpyHtoDAsync_v2");
    get(host_function, "cuLaunchHostFunc");
    get(internal, "emulator_internal");
  }
};

Driver& driver() {
  static Driver made;
  return made;
}

// Marks the driver calls in its scope as the emulator's own.
struct Internal {
  Internal() { mark(1); }
  ~Internal() { mark(-1); }
  static void mark(int change) {
    if (driver().internal) driver().internal(change);
  }
};

bool has_context() {
  void* context = nullptr;
  return driver().get_current && !driver().get_current(&context) && context;
}

void check_context_alive(const char* call) {
  unsigned flags = 0;
  int active = 0;
  if (!driver().primary_state || driver().primary_state(0, &flags, &active) || !active) {
    ledger().violate("context-last", std::string(call) + " after the primary context was released");
  }
}

// Returns what an earlier task left behind, once.
int deferred(Device* device) { return device->deferred.exchange(0); }

bool known(Device* device) { return state().devices.count(device); }
bool known(Module* module) { return state().modules.count(module); }

std::string hexadecimal(Pointer pointer) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(pointer));
  return text;
}

int violate(int status, const char* rule, const std::string& text) {
  ledger().violate(rule, text);
  return status;
}

TaskFault next_fault() {
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  for (auto fault = state().faults.begin(); fault != state().faults.end(); ++fault) {
    if (fault->skip-- > 0) continue;
    const TaskFault found = *fault;
    state().faults.erase(fault);
    return found;
  }
  return {0, 0, 0};
}

// Hangs as told; returns the status that the task ends with.
int hang(const TaskFault& fault, std::uint32_t timeout_ms) {
  std::unique_lock<std::mutex> lock(state().hang_mutex);
  const int round = state().round;
  auto released = [&] { return state().round != round; };
  if (fault.hang == 1) {
    state().released.wait_for(lock, std::chrono::milliseconds(timeout_ms), released);
    return kEngineTimeout;
  }
  state().released.wait(lock, released);
  return fault.status;
}

// The DLA's work, in stream order.
void run_task(void* data) {
  auto* run = static_cast<Run*>(data);
  const TaskFault fault = next_fault();
  int status = fault.hang ? hang(fault, run->device->timeout_ms) : fault.status;
  if (!status && state().infer) {
    status = state().infer(run->module->number, run->inputs.data(), run->outputs.data());
  }
  run->device->last_error = status;
  if (status) run->device->deferred = status;
}

// After the outputs are on the device.
void end_task(void* data) {
  auto* run = static_cast<Run*>(data);
  for (Registration* registration : run->used) registration->in_flight--;
  run->device->in_flight--;
  run->busy = false;
}

// The pinned copies of a run; freed when the module is unloaded, for a host function must not.
std::map<Module*, std::vector<Run*>>& runs() {
  static auto& made = *new std::map<Module*, std::vector<Run*>>;
  return made;
}

Run* make_run(Device* device, Module* module) {
  Internal internal;
  for (Run* run : runs()[module]) {
    if (!run->busy) return run;
  }
  auto* run = new Run{device, module, {}, {}, {}};
  for (auto [descriptors, buffers] : {std::pair{&module->inputs, &run->inputs},
                                      std::pair{&module->outputs, &run->outputs}}) {
    for (const Descriptor& descriptor : *descriptors) {
      void* memory = nullptr;
      if (driver().host_alloc(&memory, descriptor.size, 0)) return delete run, nullptr;
      buffers->push_back(memory);
    }
  }
  runs()[module].push_back(run);
  return run;
}

void free_runs(Module* module) {
  Internal internal;
  for (Run* run : runs()[module]) {
    for (auto* buffers : {&run->inputs, &run->outputs}) {
      for (void* memory : *buffers) driver().host_free(memory);
    }
    delete run;
  }
  runs().erase(module);
}

void unload(Module* module) {
  free_runs(module);
  if (state().unload) state().unload(module->number);
  module->device->module = nullptr;
  state().modules.erase(module);
  delete module;
  ledger().died("cudla module");
}

// Finds the registrations of a task's tensors; returns a status.
int resolve(Device* device, const std::vector<Descriptor>& descriptors, Pointer** pointers,
            std::vector<Registration*>& found) {
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    const Pointer pointer = reinterpret_cast<Pointer>(pointers[i]);
    auto entry = device->registered.find(pointer);
    if (entry == device->registered.end()) {
      return violate(kInvalidAddress, "registered-pointer",
                     "cudlaSubmitTask: " + hexadecimal(pointer) + " for " + descriptors[i].name +
                         " was not returned by cudlaMemRegister on this handle");
    }
    if (entry->second->size < descriptors[i].size) {
      return violate(kInvalidAddress, "tensor-size",
                     std::string("cudlaSubmitTask: ") + descriptors[i].name + " takes " +
                         std::to_string(descriptors[i].size) + " bytes, but " +
                         std::to_string(entry->second->size) + " are registered");
    }
    found.push_back(entry->second);
  }
  return kSuccess;
}

int queue_run(Run* run, void* stream) {
  Internal internal;
  const std::size_t inputs = run->inputs.size(), outputs = run->outputs.size();
  // The outputs too: what the network does not write has to stay as it was.
  for (std::size_t i = 0; i < inputs + outputs; ++i) {
    const bool input = i < inputs;
    void* copy = input ? run->inputs[i] : run->outputs[i - inputs];
    const Descriptor& tensor =
        input ? run->module->inputs[i] : run->module->outputs[i - inputs];
    if (driver().to_host(copy, run->used[i]->device_pointer, tensor.size, stream)) return kCuda;
  }
  if (driver().host_function(stream, run_task, run)) return kCuda;
  for (std::size_t i = 0; i < outputs; ++i) {
    if (driver().to_device(run->used[inputs + i]->device_pointer, run->outputs[i],
                           run->module->outputs[i].size, stream)) {
      return kCuda;
    }
  }
  return driver().host_function(stream, end_task, run) ? kCuda : kSuccess;
}

}  // namespace

// Control

EXPORT void emulator_runner(Load load, Unload unload, Infer infer) {
  state().load = load;
  state().unload = unload;
  state().infer = infer;
}

EXPORT void emulator_fail_task(int skip, int status, int hang) {
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  state().faults.push_back({skip, status, hang});
}

EXPORT int emulator_pending_tasks() {
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  return static_cast<int>(state().faults.size());
}

EXPORT void emulator_release_tasks() {
  {
    std::lock_guard<std::recursive_mutex> lock(state().mutex);
    state().faults.clear();
  }
  std::lock_guard<std::mutex> lock(state().hang_mutex);
  ++state().round;
  state().released.notify_all();
}

// cuDLA

EXPORT int cudlaGetVersion(std::uint64_t* version) {
  if (int status = ledger().enter("cudlaGetVersion")) return status;
  if (!version) return kInvalidParam;
  *version = kVersion;
  return kSuccess;
}

EXPORT int cudlaDeviceGetCount(std::uint64_t* count) {
  if (int status = ledger().enter("cudlaDeviceGetCount")) return status;
  if (!count) return kInvalidParam;
  *count = kCores;
  return kSuccess;
}

EXPORT int cudlaCreateDevice(std::uint64_t core, Device** device, std::uint32_t flags) {
  if (int status = ledger().enter("cudlaCreateDevice")) return status;
  if (core >= kCores || !device) return kInvalidParam;
  if (flags) return kUnsupportedOperation;
  if (!has_context()) return violate(kCuda, "current-context", "cudlaCreateDevice without one");
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  const auto taken = std::count_if(state().devices.begin(), state().devices.end(),
                                   [&](Device* other) { return other->core == int(core); });
  if (taken >= kHandles) {
    return violate(kOutOfResources, "handles-per-core",
                   "cudlaCreateDevice: core " + std::to_string(core) + " has 16 handles already");
  }
  *device = new Device;
  (*device)->core = static_cast<int>(core);
  state().devices.insert(*device);
  ledger().born("cudla device");
  return kSuccess;
}

EXPORT int cudlaDestroyDevice(Device* device) {
  const int injected = ledger().enter("cudlaDestroyDevice");
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!known(device)) return violate(kInvalidDevice, "handle", "cudlaDestroyDevice of no device");
  check_context_alive("cudlaDestroyDevice");
  if (device->in_flight) {
    return violate(kInvalidDevice, "in-flight", "cudlaDestroyDevice with tasks in flight");
  }
  if (device->module || !device->registered.empty()) {
    ledger().violate("release-order",
                     "cudlaDestroyDevice with " + std::to_string(device->registered.size()) +
                         " registrations and " + (device->module ? "a module" : "no module"));
  }
  const int status = deferred(device);
  for (auto& [token, registration] : device->registered) {
    delete registration;
    ledger().died("registration");
  }
  if (device->module) unload(device->module);
  state().devices.erase(device);
  delete device;
  ledger().died("cudla device");
  return injected ? injected : status;
}

EXPORT int cudlaDeviceGetAttribute(Device* device, int attribute, DeviceAttribute* value) {
  if (int status = ledger().enter("cudlaDeviceGetAttribute")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!known(device)) return violate(kInvalidDevice, "handle", "cudlaDeviceGetAttribute");
  if (attribute == 0) value->unified = 1;
  if (attribute == 1) value->version = kDeviceVersion;
  return attribute > 1 ? kInvalidAttribute : deferred(device);
}

EXPORT int cudlaGetLastError(Device* device) {
  if (int status = ledger().enter("cudlaGetLastError")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!known(device)) return violate(kInvalidDevice, "handle", "cudlaGetLastError");
  device->deferred = 0;
  return device->last_error;
}

EXPORT int cudlaSetTaskTimeoutInMs(Device* device, std::uint32_t timeout) {
  if (int status = ledger().enter("cudlaSetTaskTimeoutInMs")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!known(device)) return violate(kInvalidParam, "handle", "cudlaSetTaskTimeoutInMs");
  if (timeout < 1 || timeout > kLongestTimeout) {
    return violate(kInvalidParam, "task-timeout",
                   "cudlaSetTaskTimeoutInMs: " + std::to_string(timeout) + " is not 1 to 1000000");
  }
  device->timeout_ms = timeout;
  return deferred(device);
}

EXPORT int cudlaModuleLoadFromMemory(Device* device, const std::uint8_t* data, std::size_t size,
                                     Module** module, std::uint32_t) {
  if (int status = ledger().enter("cudlaModuleLoadFromMemory")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!known(device)) return violate(kInvalidDevice, "handle", "cudlaModuleLoadFromMemory");
  if (!data || !module) return kInvalidParam;
  if (device->module) {
    return violate(kUmd, "one-module",
                   "cudlaModuleLoadFromMemory: this handle has a module; one loadable per handle");
  }
  Header header;
  // As of any loadable that the hardware cannot run.
  if (size < sizeof header || std::memcmp(data, kMagic, 8)) return kUmd;
  std::memcpy(&header, data, sizeof header);
  const std::size_t tensors = header.inputs + header.outputs;
  const std::size_t start = sizeof header + tensors * sizeof(Descriptor);
  if (size != start + header.payload) return kUmd;
  std::vector<Descriptor> all(tensors);
  std::memcpy(all.data(), data + sizeof header, tensors * sizeof(Descriptor));
  auto* made = new Module{state().next_module++, device,
                          {all.begin(), all.begin() + header.inputs},
                          {all.begin() + header.inputs, all.end()}};
  if (!state().load || state().load(made->number, data + start, header.payload)) {
    delete made;
    return kUmd;
  }
  device->module = *module = made;
  state().modules.insert(made);
  ledger().born("cudla module");
  return deferred(device);
}

EXPORT int cudlaModuleGetAttributes(Module* module, int type, Attribute* attribute) {
  if (int status = ledger().enter("cudlaModuleGetAttributes")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!known(module)) return violate(kInvalidModule, "handle", "cudlaModuleGetAttributes");
  if (!attribute) return kInvalidParam;
  switch (type) {
    case 0: attribute->count = module->inputs.size(); break;
    case 1: attribute->count = module->outputs.size(); break;
    case 2: std::copy(module->inputs.begin(), module->inputs.end(), attribute->descriptors); break;
    case 3: std::copy(module->outputs.begin(), module->outputs.end(), attribute->descriptors); break;
    default: return kInvalidAttribute;
  }
  return deferred(module->device);
}

EXPORT int cudlaModuleUnload(Module* module, std::uint32_t flags) {
  const int injected = ledger().enter("cudlaModuleUnload");
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!known(module)) return violate(kInvalidModule, "handle", "cudlaModuleUnload of no module");
  if (flags) return kInvalidParam;
  Device* device = module->device;
  if (device->in_flight) {
    return violate(kInvalidModule, "in-flight", "cudlaModuleUnload with tasks in flight");
  }
  const int status = deferred(device);
  unload(module);
  return injected ? injected : status;
}

EXPORT int cudlaMemRegister(Device* device, const Pointer* pointer, std::size_t size,
                            Pointer** registered, std::uint32_t) {
  if (int status = ledger().enter("cudlaMemRegister")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!known(device)) return violate(kInvalidDevice, "handle", "cudlaMemRegister");
  const Pointer address = reinterpret_cast<Pointer>(pointer);
  for (const auto& [token, registration] : device->registered) {
    if (registration->device_pointer == address) {
      return violate(kMemoryRegistered, "registered-twice",
                     "cudlaMemRegister: " + hexadecimal(address) + " is registered already");
    }
  }
  if (address % 32) {
    return violate(kInvalidAddress, "alignment",
                   "cudlaMemRegister: " + hexadecimal(address) + " is not aligned to 32 bytes");
  }
  Pointer start = 0;
  std::size_t range = 0;
  unsigned type = 0, managed = 0;
  const auto attribute = driver().pointer_attribute;
  if (!size || attribute(&type, 2, address) || type != 2 || attribute(&start, 11, address) ||
      attribute(&range, 12, address)) {
    return violate(kInvalidAddress, "device-memory",
                   "cudlaMemRegister: " + hexadecimal(address) + " is no device memory");
  }
  if (!attribute(&managed, 8, address) && managed) {
    return violate(kUnsupportedOperation, "device-memory", "cudlaMemRegister of managed memory");
  }
  if (start != address || size > range) {
    return violate(kInvalidAddress, "whole-allocation",
                   "cudlaMemRegister: " + std::to_string(size) + " bytes at " +
                       hexadecimal(address) + " are no allocation of their own");
  }
  const Pointer token = state().next_registration += 4096;
  auto* registration = new Registration{address, size};
  device->registered[token] = registration;
  *registered = reinterpret_cast<Pointer*>(token);
  ledger().born("registration");
  return deferred(device);
}

EXPORT int cudlaMemUnregister(Device* device, const Pointer* pointer) {
  const int injected = ledger().enter("cudlaMemUnregister");
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!known(device)) return violate(kInvalidDevice, "handle", "cudlaMemUnregister");
  auto found = device->registered.find(reinterpret_cast<Pointer>(pointer));
  if (found == device->registered.end()) {
    return violate(kInvalidAddress, "registered-pointer",
                   "cudlaMemUnregister: " + hexadecimal(reinterpret_cast<Pointer>(pointer)) +
                       " was not returned by cudlaMemRegister on this handle");
  }
  if (found->second->in_flight) {
    return violate(kInvalidAddress, "in-flight", "cudlaMemUnregister with tasks in flight");
  }
  const int status = deferred(device);
  delete found->second;
  device->registered.erase(found);
  ledger().died("registration");
  return injected ? injected : status;
}

EXPORT int cudlaSubmitTask(Device* device, const Task* tasks, std::uint32_t count, void* stream,
                           std::uint32_t flags) {
  if (int status = ledger().enter("cudlaSubmitTask")) return status;
  std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (!known(device)) return violate(kInvalidDevice, "handle", "cudlaSubmitTask");
  if (!tasks || !count || flags) return kInvalidParam;
  // 0 is the default stream, 1 the legacy one, 2 the one per thread.
  if (reinterpret_cast<Pointer>(stream) <= 2) {
    return violate(kUnsupportedOperation, "own-stream", "cudlaSubmitTask on a default stream");
  }
  if (!has_context()) return violate(kCuda, "current-context", "cudlaSubmitTask without one");
  int capturing = 0;
  if (driver().capturing(stream, &capturing)) return kInvalidParam;
  if (capturing) {
    return violate(kUnsupportedOperation, "capture", "cudlaSubmitTask to a capturing stream");
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const Task& task = tasks[i];
    auto* module = static_cast<Module*>(task.module);
    if (!known(module) || module->device != device) {
      return violate(kInvalidModule, "handle", "cudlaSubmitTask: the module is not this handle's");
    }
    if (task.wait || task.signal) {
      return violate(kUnsupportedOperation, "events", "cudlaSubmitTask with wait or signal events");
    }
    if (!task.inputs || !task.outputs) {
      return violate(kUnsupportedOperation, "null-tensors", "cudlaSubmitTask with NULL tensors");
    }
    if (task.input_count != module->inputs.size() ||
        task.output_count != module->outputs.size()) {
      return violate(kInvalidParam, "tensor-count",
                     "cudlaSubmitTask: " + std::to_string(task.input_count) + " inputs and " +
                         std::to_string(task.output_count) + " outputs are not the module's");
    }
    if (int status = deferred(device)) return status;
    std::vector<Registration*> used;
    if (int status = resolve(device, module->inputs, task.inputs, used)) return status;
    if (int status = resolve(device, module->outputs, task.outputs, used)) return status;
    Run* run = make_run(device, module);
    if (!run) return kOutOfResources;
    run->used = used;
    run->busy = true;
    for (Registration* registration : used) registration->in_flight++;
    device->in_flight++;
    if (int status = queue_run(run, stream)) return status;
  }
  return kSuccess;
}
