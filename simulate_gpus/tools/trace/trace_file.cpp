// SPDX-License-Identifier: MIT
#include "tools/trace/trace_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "runtime/settings.hpp"

namespace simulate_gpus {
namespace {

constexpr std::size_t k_buffered_bytes = std::size_t{64} << 10;

constexpr char k_units[] =
    "Lengths are units, not times: a copy lasts one unit a byte, an event 1, any other work 1,000; "
    "giving work takes the host 10. Order and dependencies are those of a GPU with these units.";

// SIMULATE_GPUS_TRACE_FILE names the process that writes the file itself; others, also the children
// of fork, write one with their number. "1234:/tmp/trace.json", "/tmp/trace.5678.json".
std::string file_of_process() {
  const std::string& text = settings().trace_file;
  const auto colon = text.find(':');
  std::filesystem::path file = text.substr(colon + 1);
  const std::string process = std::to_string(getpid());
  if (text.substr(0, colon) == process) return file;
  const std::string extension = file.extension();
  return file.replace_extension(process + extension);
}

std::string event_of(char phase, const std::pair<int, int>& place, const std::string& fields) {
  return std::string("{\"ph\":\"") + phase + '"' + field("pid", place.first) +
         field("tid", place.second) + fields + '}';
}

// A file that was cut off is an array of events without its end, which viewers open: only whole
// events are written. The end makes an object of it, by another beginning of the same length.
class TraceFile {
 public:
  TraceFile()
      : owner_(getpid()),
        file_(file_of_process()),
        descriptor_(open(file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) give_up();
    const std::string first =
        event_of('M', {k_host_process, k_first_row},
                 field("name", "process_name") + object("args", field("name", "host")));
    const std::string about =
        object("otherData", field("units", k_units) + field("process", owner_));
    beginning_ = '{' + about.substr(1) + ",\"traceEvents\":[" + first;
    buffer_ = '[' + first;
    buffer_.append(beginning_.size() - buffer_.size(), ' ');
    append(event_of('M', {k_host_process, k_first_row},
                    field("name", "process_labels") +
                        object("args", field("labels", "lengths are units and not times"))));
  }

  void append(const std::string& event) {
    buffer_ += ",\n" + event;
    if (buffer_.size() >= k_buffered_bytes) flush();
  }

  void flush() {
    for (std::string_view left = buffer_; descriptor_ >= 0 && !left.empty();) {
      const ssize_t written = ::write(descriptor_, left.data(), left.size());
      if (written >= 0) {
        left.remove_prefix(static_cast<std::size_t>(written));
      } else if (errno != EINTR) {
        give_up();
      }
    }
    buffer_.clear();
  }

  [[nodiscard]] bool is_of_this_process() const { return getpid() == owner_; }

  void finish() {
    if (descriptor_ < 0) return;
    const bool is_object = lseek(descriptor_, 0, SEEK_CUR) >= 0;  // not into a pipe
    buffer_ += is_object ? "\n]}\n" : "\n]\n";
    flush();
    if (is_object && pwrite(descriptor_, beginning_.data(), beginning_.size(), 0) < 0) give_up();
    close(std::exchange(descriptor_, -1));
  }

 private:
  void give_up() {
    std::fprintf(stderr, "simulate_gpus: the trace %s cannot be written: %s\n", file_.c_str(),
                 std::strerror(errno));
    close(std::exchange(descriptor_, -1));
  }

  pid_t owner_;
  std::string file_;
  int descriptor_;
  std::string beginning_, buffer_;
};

// Never destroyed: used until the very end of a process. Made with the first event.
std::atomic<TraceFile*> trace_file = nullptr;
std::mutex trace_file_mutex;

}  // namespace

bool has_trace_file() {
  static const bool has = !settings().trace_file.empty();
  return has;
}

void write_trace_event(char phase, const std::pair<int, int>& place, const std::string& fields) {
  const std::scoped_lock lock(trace_file_mutex);
  if (trace_file == nullptr) trace_file = new TraceFile;
  trace_file.load()->append(event_of(phase, place, fields));
}

void flush_trace_file() {
  const std::scoped_lock lock(trace_file_mutex);
  if (TraceFile* const file = trace_file) file->flush();
}

void finish_trace_file() {
  TraceFile* const file = trace_file;
  if (file == nullptr || !file->is_of_this_process()) return;
  const std::scoped_lock lock(trace_file_mutex);
  file->finish();
}

std::string field(std::string_view name, std::string_view text) {
  std::string quoted;
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
  }
  return std::string(",\"").append(name) + "\":\"" + quoted + '"';
}

std::string object(std::string_view name, const std::string& fields) {
  return std::string(",\"").append(name) + "\":{" + (fields.empty() ? "" : fields.substr(1)) + '}';
}

}  // namespace simulate_gpus
