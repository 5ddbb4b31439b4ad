// What the stand-in libraries share: a ledger of live handles, a list of broken rules, and faults
// on demand. Each library has its own; Python reads and sets them through the emulator_* functions.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace emulator {

struct Fault {
  std::string call;
  int skip;      // Calls that still go well.
  int status;    // 0: only the delay.
  int delay_ms;  // Before the call; negative: until release().
  bool sticky;   // All later calls fail alike, as after a CUDA error that ends the context.
};

class Ledger {
 public:
  explicit Ledger(const char* library) : library_(library) {}

  // Counts a call and returns the status it is to fail with, or 0.
  int enter(const char* call) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++calls_[call];
    if (sticky_) return sticky_;
    for (auto fault = faults_.begin(); fault != faults_.end(); ++fault) {
      if (fault->call != call || fault->skip-- > 0) continue;
      const Fault found = *fault;
      faults_.erase(fault);
      if (found.delay_ms < 0) {
        const int round = round_;
        released_.wait(lock, [&] { return round_ != round; });
      } else if (found.delay_ms > 0) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::milliseconds(found.delay_ms));
        lock.lock();
      }
      if (found.sticky) sticky_ = found.status;
      return found.status;
    }
    return 0;
  }

  void fail(const Fault& fault) {
    std::lock_guard<std::mutex> lock(mutex_);
    faults_.push_back(fault);
  }

  // Ends every hang.
  void release() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++round_;
    released_.notify_all();
  }

  // Forgets faults, counts and broken rules; what is alive stays in the ledger.
  void reset() {
    std::lock_guard<std::mutex> lock(mutex_);
    faults_.clear();
    calls_.clear();
    violations_.clear();
    sticky_ = 0;
  }

  int pending() {
    std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int>(faults_.size());
  }

  void violate(const char* rule, const std::string& text) {
    std::lock_guard<std::mutex> lock(mutex_);
    violations_.push_back(std::string(rule) + ": " + text);
  }

  void born(const std::string& kind) { add(kind, 1); }
  void died(const std::string& kind) { add(kind, -1); }

  // "kind count" a line.
  std::string alive() {
    std::lock_guard<std::mutex> lock(mutex_);
    return lines(alive_);
  }

  std::string calls() {
    std::lock_guard<std::mutex> lock(mutex_);
    return lines(calls_);
  }

  std::string violations() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::string text;
    for (const auto& violation : violations_) text += violation + "\n";
    return text;
  }

  // Whether an error has ended the context, and with it all work.
  bool dead() {
    std::lock_guard<std::mutex> lock(mutex_);
    return sticky_;
  }

  void report_leaks() {
    const std::string left = alive();
    if (left.empty()) return;
    std::fprintf(stderr, "emulated %s: leaked at exit:\n%s", library_, left.c_str());
  }

 private:
  void add(const std::string& kind, int n) {
    std::lock_guard<std::mutex> lock(mutex_);
    alive_[kind] += n;
  }

  static std::string lines(const std::map<std::string, long>& counts) {
    std::string text;
    for (const auto& [name, n] : counts) {
      if (n) text += name + " " + std::to_string(n) + "\n";
    }
    return text;
  }

  const char* library_;
  std::mutex mutex_;
  std::condition_variable released_;
  std::vector<Fault> faults_;
  std::map<std::string, long> calls_, alive_;
  std::vector<std::string> violations_;
  int sticky_ = 0, round_ = 0;
};

// Never destroyed: threads of the library may outlive main().
inline Ledger& ledger();

inline int copy_text(const std::string& text, char* buffer, int size) {
  if (size > 0) {
    std::strncpy(buffer, text.c_str(), size - 1);
    buffer[size - 1] = 0;
  }
  return static_cast<int>(text.size());
}

}  // namespace emulator

// The control functions of one library; `name` is for messages.
#define EMULATOR_CONTROL(name)                                                              \
  emulator::Ledger& emulator::ledger() {                                                    \
    static Ledger& made = *new Ledger(name);                                                \
    return made;                                                                            \
  }                                                                                         \
  EXPORT void emulator_fail(const char* call, int skip, int status, int delay, int sticky) { \
    emulator::ledger().fail({call, skip, status, delay, sticky != 0});                      \
  }                                                                                         \
  EXPORT void emulator_release() { emulator::ledger().release(); }                          \
  EXPORT void emulator_reset() { emulator::ledger().reset(); }                              \
  EXPORT int emulator_pending() { return emulator::ledger().pending(); }                    \
  EXPORT int emulator_alive(char* buffer, int size) {                                       \
    return emulator::copy_text(emulator::ledger().alive(), buffer, size);                   \
  }                                                                                         \
  EXPORT int emulator_calls(char* buffer, int size) {                                       \
    return emulator::copy_text(emulator::ledger().calls(), buffer, size);                   \
  }                                                                                         \
  EXPORT int emulator_violations(char* buffer, int size) {                                  \
    return emulator::copy_text(emulator::ledger().violations(), buffer, size);              \
  }                                                                                         \
  __attribute__((destructor)) static void report_leaks() { emulator::ledger().report_leaks(); }
