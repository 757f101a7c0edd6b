#include <bit>
#include <cstdio>
#include <string_view>

#include "ptx/instructions/builtins.hpp"

namespace simulate_gpus::ptx {
namespace {

template <class... Values>
std::string formatted(const std::string& specification, Values... values) {
  const int length = std::snprintf(nullptr, 0, specification.c_str(), values...);
  if (length <= 0) return "";
  std::string text(static_cast<std::size_t>(length) + 1, '\0');
  std::snprintf(text.data(), text.size(), specification.c_str(), values...);
  text.pop_back();
  return text;
}

struct Conversion {
  std::string flags;   // flags, width and precision
  std::string length;  // h, hh, l, ll, z ...
  char kind = '\0';
  std::size_t end = 0;  // behind it
};

Conversion read_conversion(const std::string& format, std::size_t at, PrintfArguments& arguments,
                           std::size_t& offset) {
  Conversion found;
  for (++at; at < format.size(); ++at) {
    const char c = format[at];
    if (c == '*') {
      offset = (offset + 3) / 4 * 4;
      found.flags += std::to_string(static_cast<std::int32_t>(arguments.read(offset, 4)));
      offset += 4;
    } else if (std::string_view("-+ #0123456789.").find(c) != std::string_view::npos) {
      if (found.flags.size() < 32) found.flags += c;
    } else if (std::string_view("hlLqjzt").find(c) != std::string_view::npos) {
      found.length += c;
    } else {
      found.kind = c;
      ++at;
      break;
    }
  }
  found.end = at;
  return found;
}

std::string convert_one(const Conversion& conversion, PrintfArguments& arguments,
                        std::size_t& offset) {
  const char kind = conversion.kind;
  const bool is_float = std::string_view("eEfFgGaA").find(kind) != std::string_view::npos;
  const bool is_integer = std::string_view("diouxX").find(kind) != std::string_view::npos;
  const bool is_wide =
      is_float || kind == 's' || kind == 'p' ||
      (is_integer && conversion.length.find_first_of("lqjzt") != std::string::npos);
  if (!is_float && !is_integer && kind != 's' && kind != 'p' && kind != 'c') return "";
  const std::size_t bytes = is_wide ? 8 : 4;
  offset = (offset + bytes - 1) / bytes * bytes;
  const std::uint64_t bits = arguments.read(offset, bytes);
  offset += bytes;
  const std::string flags = "%" + conversion.flags;
  if (is_float) return formatted(flags + kind, std::bit_cast<double>(bits));
  if (kind == 's') return formatted(flags + "s", arguments.read_text(bits).c_str());
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it is only printed
  if (kind == 'p') return formatted(flags + "p", reinterpret_cast<void*>(bits));
  if (kind == 'c')
    return formatted(flags + "c", static_cast<int>(static_cast<std::uint32_t>(bits)));
  if (is_wide) return formatted(flags + "ll" + kind, static_cast<unsigned long long>(bits));
  const bool is_short = conversion.length == "h" || conversion.length == "hh";
  return formatted(flags + (is_short ? conversion.length : "") + kind, static_cast<unsigned>(bits));
}

}  // namespace

std::string format_printf(const std::string& format, PrintfArguments& arguments) {
  std::string text;
  std::size_t offset = 0, at = 0;
  while (at < format.size()) {
    if (format[at] != '%') {
      text += format[at++];
    } else if (format.compare(at, 2, "%%") == 0) {
      text += '%';
      at += 2;
    } else {
      const Conversion conversion = read_conversion(format, at, arguments, offset);
      text += convert_one(conversion, arguments, offset);
      at = conversion.end;
    }
  }
  return text;
}

}  // namespace simulate_gpus::ptx
