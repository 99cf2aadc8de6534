#include "train/traces/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/fail.h"

namespace talweg::train {
namespace {

constexpr std::size_t kPackedWindow = std::size_t{1} << 17;
constexpr std::string_view kMark = "\xef\xbb\xbf";  // of the order of bytes
constexpr int kGzipOnly = 16 + MAX_WBITS;

}  // namespace

struct TraceFile::Inflater {
  z_stream stream{};
  std::array<char, kPackedWindow> packed;
  bool between = true;  // members of the file, each of which is gzip's
  Inflater() {
    if (::inflateInit2(&stream, kGzipOnly) != Z_OK)
      throw_error(ErrorCode::system, "cannot unpack gzip: no memory");
  }
  ~Inflater() { ::inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

TraceFile::TraceFile(std::string path, OnRead on_read)
    : path_(std::move(path)), on_read_(std::move(on_read)) {
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info {};
  if (file_ < 0 || ::fstat(file_, &info) != 0) {
    const int reason = errno;
    if (file_ >= 0) ::close(file_);
    throw_error(ErrorCode::bad_file, "{}: cannot read it: {}", path_, std::strerror(reason));
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(file_);
    throw_error(ErrorCode::bad_file, "{}: expected a file, got a {}", path_,
                S_ISDIR(info.st_mode) ? "directory" : "pipe or device");
  }
  std::array<unsigned char, 2> magic{};
  if (::pread(file_, magic.data(), magic.size(), 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b)
    inflater_ = std::make_unique<Inflater>();
}

TraceFile::~TraceFile() {
  ::close(file_);
}

std::size_t TraceFile::read_raw(char* into, std::size_t most) {
  while (true) {
    const ssize_t n = ::read(file_, into, most);
    if (n >= 0) {
      if (on_read_) on_read_(static_cast<std::size_t>(n));
      return static_cast<std::size_t>(n);
    }
    if (errno != EINTR)
      throw_error(ErrorCode::bad_file, "{}: cannot read it: {}", path_, std::strerror(errno));
  }
}

// Of text in UTF-8, whose readers know nothing of it; no other format begins so.
std::size_t TraceFile::read(char* into, std::size_t most) {
  std::size_t held = read_unpacked(into, most);
  if (!std::exchange(at_start_, false)) return held;
  while (held < kMark.size() && held < most) {
    const std::size_t n = read_unpacked(into + held, most - held);
    if (n == 0) return held;
    held += n;
  }
  if (!std::string_view(into, held).starts_with(kMark)) return held;
  held -= kMark.size();
  std::memmove(into, into + kMark.size(), held);
  return held > 0 ? held : read_unpacked(into, most);
}

std::size_t TraceFile::read_unpacked(char* into, std::size_t most) {
  if (!inflater_) return read_raw(into, most);
  z_stream& z = inflater_->stream;
  z.next_out = reinterpret_cast<Bytef*>(into);
  z.avail_out = static_cast<uInt>(std::min<std::size_t>(most, std::size_t{1} << 30));
  const uInt wanted = z.avail_out;
  while (z.avail_out == wanted) {
    if (z.avail_in == 0) {
      z.next_in = reinterpret_cast<Bytef*>(inflater_->packed.data());
      z.avail_in = static_cast<uInt>(read_raw(inflater_->packed.data(), inflater_->packed.size()));
      if (z.avail_in == 0 && !inflater_->between)
        throw_error(ErrorCode::bad_file,
                    "{}: the gzip data end in the middle, after {} bytes: the file is cut", path_,
                    z.total_in);
      if (z.avail_in == 0) return 0;
    }
    inflater_->between = false;
    const int answer = ::inflate(&z, Z_NO_FLUSH);
    if (answer == Z_STREAM_END) {
      inflater_->between = true;
      ::inflateReset(&z);
    } else if (answer != Z_OK && answer != Z_BUF_ERROR) {
      throw_error(ErrorCode::bad_file, "{}: damaged gzip data ({})", path_,
                  z.msg != nullptr ? z.msg : "no reason given");
    }
  }
  return wanted - z.avail_out;
}

std::string read_trace(const std::string& path, std::size_t most_bytes, const OnRead& on_read) {
  TraceFile file(path, on_read);
  std::string text;
  std::array<char, std::size_t{1} << 16> part;
  while (const std::size_t n = file.read(part.data(), part.size())) {
    text.append(part.data(), n);
    if (text.size() > most_bytes)
      throw_error(ErrorCode::bad_file, "{}: expected a file of at most {} MiB", path, most_bytes >> 20);
  }
  return text;
}

std::string read_head(const std::string& path, std::size_t bytes) {
  TraceFile file(path);
  std::string text(bytes, '\0');
  std::size_t held = 0;
  while (held < bytes) {
    const std::size_t n = file.read(text.data() + held, bytes - held);
    if (n == 0) break;
    held += n;
  }
  text.resize(held);
  return text;
}

}  // namespace talweg::train
