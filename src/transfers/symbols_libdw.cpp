// SPDX-License-Identifier: MIT
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>

#include "transfers/symbols.hpp"

namespace use_gpu::detail {
namespace {

std::string file_name(const char* path) {
  return path == nullptr ? "" : std::filesystem::path(path).filename().string();
}

// The entry's name with those of its scopes: "train::Net::forward".
std::string qualified_name(Dwarf_Die entry) {
  // An inlined or a separate definition refers to its declaration, which is in the scopes.
  Dwarf_Attribute reference;
  while ((dwarf_attr(&entry, DW_AT_abstract_origin, &reference) != nullptr ||
          dwarf_attr(&entry, DW_AT_specification, &reference) != nullptr) &&
         dwarf_formref_die(&reference, &entry) != nullptr) {
  }
  const char* const own = dwarf_diename(&entry);
  std::string name = own != nullptr ? own : "(anonymous namespace)";
  Dwarf_Die* scopes = nullptr;
  const int unit = dwarf_getscopes_die(&entry, &scopes) - 1;  // the last of them
  int parent = 1;
  while (parent < unit && dwarf_tag(&scopes[parent]) == DW_TAG_lexical_block) ++parent;
  if (parent < unit) name = qualified_name(scopes[parent]) + "::" + name;
  std::free(scopes);
  return name;
}

// The mangled name; or, for what only its file knows, the qualified one.
std::string function_name(Dwarf_Die& function) {
  Dwarf_Attribute attribute;
  const char* const mangled =
      dwarf_formstring(dwarf_attr_integrate(&function, DW_AT_linkage_name, &attribute));
  return mangled != nullptr ? mangled : qualified_name(function);
}

// Adds the functions that contain the address, the innermost inlined one first. (dwarf_getscopes
// does not enter namespaces, where Clang puts functions.)
void add_functions(Dwarf_Die& parent, Dwarf_Addr address, std::vector<Dwarf_Die>& functions) {
  Dwarf_Die child;
  if (dwarf_child(&parent, &child) != 0) return;
  do {
    const int tag = dwarf_tag(&child);
    const bool contains = dwarf_haspc(&child, address) == 1;
    const bool is_function = tag == DW_TAG_subprogram;
    // A function's own entry may contain those of its local classes.
    if (contains || is_function || tag == DW_TAG_namespace || tag == DW_TAG_class_type ||
        tag == DW_TAG_structure_type)
      add_functions(child, address, functions);
    if (contains && (is_function || tag == DW_TAG_inlined_subroutine)) functions.push_back(child);
  } while (functions.empty() && dwarf_siblingof(&child, &child) == 0);
}

// Sets the frame's place to where an inlined function was called.
void set_call(Frame& frame, Dwarf_Die& inlined, Dwarf_Files* files) {
  Dwarf_Attribute attribute;
  Dwarf_Word file = 0, line = 0;
  dwarf_formudata(dwarf_attr(&inlined, DW_AT_call_file, &attribute), &file);
  dwarf_formudata(dwarf_attr(&inlined, DW_AT_call_line, &attribute), &line);
  frame.file = file_name(dwarf_filesrc(files, file, nullptr, nullptr));
  frame.line = static_cast<int>(line);
}

// The compilation unit of an address; `bias` is what its debug information must add to its own.
Dwarf_Die* find_unit(Dwfl_Module* module, Dwarf_Addr address, Dwarf_Addr& bias) {
  Dwarf_Die* unit = dwfl_module_addrdie(module, address, &bias);
  if (unit != nullptr) return unit;
  do {  // Clang writes no table of addresses
    unit = dwfl_module_nextcu(module, unit, &bias);
  } while (unit != nullptr && dwarf_haspc(unit, address - bias) != 1);
  return unit;
}

std::vector<Frame> frames_at(Dwfl* process, Dwarf_Addr address) {
  Frame frame;
  Dwfl_Module* const module = dwfl_addrmodule(process, address);
  if (module == nullptr) return {frame};
  Dwarf_Addr start = 0, bias = 0;
  frame.object = file_name(
      dwfl_module_info(module, nullptr, &start, nullptr, nullptr, nullptr, nullptr, nullptr));
  frame.offset = address - start;
  GElf_Sym symbol;
  GElf_Off offset = 0;
  const char* const name =
      dwfl_module_addrinfo(module, address, &offset, &symbol, nullptr, nullptr, nullptr);
  if (name != nullptr && offset < symbol.st_size) {  // else it is only the nearest function
    frame.function = name;
    frame.offset = offset;
  }

  Dwarf_Die* const unit = find_unit(module, address, bias);
  if (unit == nullptr) return {frame};
  std::uint8_t kind = 0;
  Dwarf_Die split;  // what -gsplit-dwarf has put into another file
  dwarf_cu_info(unit->cu, nullptr, &kind, nullptr, &split, nullptr, nullptr, nullptr);
  std::vector<Dwarf_Die> functions;
  add_functions(kind == DW_UT_skeleton ? split : *unit, address - bias, functions);
  // Clang's -g1 leaves out functions into which nothing is inlined: the line is theirs. Where the
  // split file is not found, it may be an inlined function's.
  if (functions.empty() && kind == DW_UT_skeleton) return {frame};
  if (Dwarf_Line* const line = dwarf_getsrc_die(unit, address - bias)) {
    dwarf_lineno(line, &frame.line);
    frame.file = file_name(dwarf_linesrc(line, nullptr, nullptr));
  }
  Dwarf_Files* files = nullptr;  // without a line table none, of which no name is known
  dwarf_getsrcfiles(unit, &files, nullptr);
  std::vector<Frame> frames;
  for (Dwarf_Die& function : functions) {
    if (dwarf_tag(&function) == DW_TAG_subprogram) break;
    const std::string inlined = function_name(function);
    // Clang's -g1 has neither namespaces nor mangled names: one of another file may be LibTorch's.
    const bool has_scope = inlined.starts_with("_Z") || inlined.find("::") != inlined.npos;
    if (has_scope || frame.file == file_name(dwarf_diename(unit)))
      frames.push_back({inlined, frame.file, frame.line, frame.object});
    set_call(frame, function, files);
  }
  frames.push_back(frame);
  return frames;
}

}  // namespace

Symbols loaded_symbols() {
  // Debug information of other files is not looked for: that may ask servers.
  static const Dwfl_Callbacks k_callbacks{
      .find_elf = dwfl_linux_proc_find_elf,
      .find_debuginfo = [](Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                           GElf_Word, char**) { return -1; },
      .section_address = nullptr,
      .debuginfo_path = nullptr};
  const std::shared_ptr<Dwfl> process(dwfl_begin(&k_callbacks), &dwfl_end);
  dwfl_linux_proc_report(process.get(), getpid());
  dwfl_report_end(process.get(), nullptr, nullptr);
  return [process,
          known = std::map<std::uintptr_t, std::vector<Frame>>()](std::uintptr_t address) mutable {
    auto& frames = known[address];
    if (frames.empty()) frames = frames_at(process.get(), address);
    return frames;
  };
}

}  // namespace use_gpu::detail
