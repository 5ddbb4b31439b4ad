// A stand-in for libnvrtc: compiles a kernel's source for the host with the system's compiler.
// The "cubin" that it gives is a shared object behind a header that the stand-in driver knows.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "emulator.hpp"

EMULATOR_CONTROL("NVRTC")

namespace {

using emulator::ledger;

enum Result {
  kSuccess = 0,
  kInvalidInput = 3,
  kInvalidProgram = 4,
  kCompilation = 6,
};

struct Program {
  std::string source, log, image;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string with_wrappers(const std::string& source) {
  std::string wrapped = "#include \"" NATIVE_DIRECTORY "/kernel.hpp\"\n" + source;
  const std::string start = "__global__ void ";
  for (std::size_t at = source.find(start); at != std::string::npos; at = source.find(start, at)) {
    at += start.size();
    wrapped += "\nEMULATED_KERNEL(" + source.substr(at, source.find('(', at) - at) + ")";
  }
  return wrapped + "\n";
}

int run_compiler(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failed || waitpid(child, &status, 0) != child) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

EXPORT int nvrtcVersion(int* major, int* minor) {
  if (int status = ledger().enter("nvrtcVersion")) return status;
  *major = 13;
  *minor = 0;
  return kSuccess;
}

EXPORT const char* nvrtcGetErrorString(int status) {
  return status == kSuccess       ? "NVRTC_SUCCESS"
         : status == kCompilation ? "NVRTC_ERROR_COMPILATION"
                                  : "NVRTC_ERROR";
}

EXPORT int nvrtcCreateProgram(Program** program, const char* source, const char*, int headers,
                              const char* const*, const char* const*) {
  if (int status = ledger().enter("nvrtcCreateProgram")) return status;
  if (!program || !source || headers) return kInvalidInput;
  *program = new Program{source, "", ""};
  ledger().born("nvrtcProgram");
  return kSuccess;
}

EXPORT int nvrtcDestroyProgram(Program** program) {
  const int status = ledger().enter("nvrtcDestroyProgram");
  if (!program || !*program) return kInvalidProgram;
  delete *program;
  *program = nullptr;
  ledger().died("nvrtcProgram");
  return status;
}

EXPORT int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  if (int status = ledger().enter("nvrtcCompileProgram")) return status;
  if (!program) return kInvalidProgram;
  char folder[] = "/tmp/dla_ros_kernel_XXXXXX";
  if (!mkdtemp(folder)) return kCompilation;
  const std::string base = std::string(folder) + "/kernel";
  std::ofstream(base + ".cpp") << with_wrappers(program->source);
  std::vector<std::string> words = {COMPILER, "-std=c++20", "-O2", "-shared", "-fPIC", "-w",
                                    "-ffp-contract=off", base + ".cpp", "-o", base + ".so"};
  for (int i = 0; i < count; ++i) {
    if (!std::strncmp(options[i], "-D", 2)) words.push_back(options[i]);
  }
  const int code = run_compiler(words, base + ".log");
  program->log = read_file(base + ".log");
  const std::string object = code ? "" : read_file(base + ".so");
  for (const char* end : {".cpp", ".so", ".log"}) unlink((base + end).c_str());
  rmdir(folder);
  if (object.empty()) return kCompilation;
  const std::uint64_t size = object.size();
  program->image = "EMUKERNL" + std::string(reinterpret_cast<const char*>(&size), 8) + object;
  return kSuccess;
}

EXPORT int nvrtcGetProgramLogSize(Program* program, std::size_t* size) {
  if (!program) return kInvalidProgram;
  *size = program->log.size() + 1;
  return kSuccess;
}

EXPORT int nvrtcGetProgramLog(Program* program, char* log) {
  if (!program) return kInvalidProgram;
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return kSuccess;
}

EXPORT int nvrtcGetCUBINSize(Program* program, std::size_t* size) {
  if (int status = ledger().enter("nvrtcGetCUBINSize")) return status;
  if (!program || program->image.empty()) return kInvalidProgram;
  *size = program->image.size();
  return kSuccess;
}

EXPORT int nvrtcGetCUBIN(Program* program, char* image) {
  if (int status = ledger().enter("nvrtcGetCUBIN")) return status;
  if (!program || program->image.empty()) return kInvalidProgram;
  std::memcpy(image, program->image.data(), program->image.size());
  return kSuccess;
}
