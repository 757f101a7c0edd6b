#include "ptx/reader/parser.hpp"

#include <algorithm>

#include "ptx/reader/reader.hpp"

namespace simulate_gpus::ptx {

Source read_ptx(std::string_view text) { return Parser(text).read(); }

Source Parser::read() {
  while (!cursor_.at_end()) directive();
  return std::move(source_);
}

void Parser::directive() {
  const std::string_view word = cursor_.peek();
  if (word == ".version") {
    cursor_.next();
    const std::string_view number = cursor_.next();  // 8.0
    std::uint64_t major = 0, minor = 0;
    const std::size_t dot = std::min(number.find('.'), number.size());
    if (!read_integer(number.substr(0, dot), major) ||
        !read_integer(number.substr(std::min(dot + 1, number.size())), minor) || major > 99 ||
        minor > 9)
      cursor_.fail(".version needs a number such as 8.0");
    source_.version = static_cast<std::uint32_t>(10 * major + minor);
  } else if (word == ".target") {
    cursor_.next();
    const std::string_view name = cursor_.next();  // sm_90a
    std::size_t end = 3;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    std::uint64_t number = 0;
    if (!name.starts_with("sm_") || !read_integer(name.substr(3, end - 3), number) || number > 999)
      cursor_.fail(".target needs an architecture such as sm_90");
    source_.target = static_cast<std::uint32_t>(number);
    cursor_.skip_line();
  } else if (word == ".file") {
    cursor_.next();
    const std::uint64_t number = cursor_.integer();
    std::string_view name = cursor_.next();
    if (name.size() > 1 && name[0] == '"') name = name.substr(1, name.size() - 2);
    source_.files[static_cast<int>(number)] = name;
    while (cursor_.take(",")) cursor_.integer();  // its time and size
  } else if (word == ".address_size") {
    cursor_.next();
    if (cursor_.integer() != 64) cursor_.refuse("another size of addresses than 64 bits");
  } else if (word == ".section") {
    while (cursor_.peek() != "{") cursor_.next();
    cursor_.skip_braces();
  } else if (word == ".pragma" || word == ".alias") {
    if (word == ".alias") cursor_.refuse(".alias");
    cursor_.skip_past(";");
  } else {
    bool is_extern = false;
    while (cursor_.peek() == ".visible" || cursor_.peek() == ".extern" ||
           cursor_.peek() == ".weak" || cursor_.peek() == ".common") {
      is_extern |= cursor_.next() == ".extern";
    }
    if (cursor_.peek() == ".entry" || cursor_.peek() == ".func") return function(is_extern);
    VariableDeclaration declared = variable(false);
    declared.is_extern = is_extern;
    cursor_.expect(";");
    VariableDeclaration& known = source_.variables[declared.name];
    if (known.name.empty() || known.is_extern) known = std::move(declared);
  }
}

void Parser::function(bool) {
  Function read;
  read.line = cursor_.line();
  read.is_entry = cursor_.next() == ".entry";
  scopes_.emplace(read);
  scopes_->open();
  if (cursor_.take(".attribute")) cursor_.skip_past(")");
  if (!read.is_entry && cursor_.peek() == "(") read.results = parameters(read);
  read.name = cursor_.next();
  if (cursor_.peek() == "(") read.parameters = parameters(read);
  function_directives(read);
  if (!cursor_.take(";")) {
    read.has_body = true;
    cursor_.expect("{");
    body(read);
  }
  scopes_->close();
  scopes_.reset();
  Function& known = source_.functions[read.name];
  if (known.has_body && read.has_body) cursor_.fail("a second body of " + read.name);
  if (!known.has_body) known = std::move(read);
}

void Parser::function_directives(Function& read) {
  const auto three = [&](std::uint32_t* sizes) {
    std::uint64_t all = 1;
    for (int k = 0; k < 3; ++k) {
      const std::uint64_t size = k == 0 || cursor_.take(",") ? cursor_.integer() : 1;
      if (size > 65535) cursor_.fail("a block of that size");
      sizes[k] = static_cast<std::uint32_t>(size);
      all *= size;
    }
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(all, 1024));
  };
  std::uint32_t unused[3];
  while (cursor_.peek() != "{" && cursor_.peek() != ";") {
    const std::string_view word = cursor_.next();
    if (word == ".maxntid") {
      read.max_threads = three(unused);
    } else if (word == ".reqntid") {
      read.max_threads = three(read.required_threads);
    } else if (word == ".minnctapersm" || word == ".maxnctapersm" || word == ".maxnreg" ||
               word == ".maxclusterrank") {
      cursor_.integer();
    } else if (word == ".reqnctapercluster") {
      read.refused = ".reqnctapercluster";
      three(unused);
    } else if (word == ".explicitcluster" || word == ".blocksareclusters" || word == ".attribute" ||
               word == ".abi_preserve" || word == ".abi_preserve_control") {
      read.refused = word;
    } else if (word == ".pragma") {
      cursor_.skip_past(";");
    } else if (word != ".noreturn" && word != ".unique") {
      cursor_.fail("not understood: " + std::string(word.substr(0, 60)));
    }
  }
}

void Parser::body(Function& read) {
  if (scopes_->depth() > 200) cursor_.fail("blocks within too many blocks");
  while (!cursor_.take("}")) statement_or_declaration(read);
}

void Parser::statement_or_declaration(Function& read) {
  const std::string_view word = cursor_.peek();
  if (word == "{") {
    cursor_.next();
    scopes_->open();
    body(read);
    scopes_->close();
  } else if (word == ".loc") {
    location();
  } else if (word == ".pragma") {
    cursor_.skip_past(";");
  } else if (word == ".reg") {
    registers();
  } else if (word == ".local" || word == ".shared" || word == ".param" || word == ".global" ||
             word == ".const") {
    read.variables.push_back(variable(false));
    cursor_.expect(";");
  } else if (cursor_.peek(1) == ":") {
    labelled(read);
  } else if (word == ";") {
    cursor_.next();
  } else {
    read.body.push_back(statement());
  }
}

// .loc 1 23 4, which may go on in its line with where it is inlined.
void Parser::location() {
  cursor_.next();
  place_.file = static_cast<int>(cursor_.integer());
  place_.line = static_cast<int>(cursor_.integer());
  cursor_.integer();
  if (!cursor_.take(",")) return;
  cursor_.skip_line();
}

}  // namespace simulate_gpus::ptx
