// One HTTP request and one plain response, free of any socket. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/fair/party.h"

namespace quire::server {

struct HeaderField {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;  // as sent: "GET"
  std::string target;  // origin form as sent, still encoded: "/v1/models/a%2Fb?x=1", or "*"
  std::string path;    // percent-decoded, without the query: "/v1/models/a/b"
  std::string query;   // still encoded, without '?'
  std::string host;    // authority of an absolute target, else the Host field; may be empty
  int minor_version = 1;
  bool keep_alive = true;
  bool expects_continue = false;
  std::vector<HeaderField> fields;  // names in lower case, order as sent
  std::string body;                 // whole, chunks joined
  std::string identity = {};        // name of the API key that let it in; empty where none was needed
  int32_t weight = 1;               // of that key
  fair::PartyId party = {};         // whose the request is, once that key is known (party.h)
  bool admin = false;  // that key has the admin role, or there are no keys; not set on open routes with keys

  // The first field of that (lower-case) name, or null.
  const std::string* Find(std::string_view lower_name) const;
  // Whether the first field of that (lower-case) name, a list as Accept and Accept-Encoding have it, names
  // `value`, in any case and not with q=0. Wildcards name nothing.
  bool Accepts(std::string_view lower_name, std::string_view value) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json; charset=utf-8";  // empty: no Content-Type field
  std::string body = {};
  std::vector<HeaderField> headers = {};  // further fields; values are trusted
};

// "Not Found" for 404; "Status" for a code without a phrase.
std::string_view ReasonPhrase(int status);

// Decodes %XX ('+' stays). False for a broken escape.
bool PercentDecode(std::string_view text, std::string& out);

}  // namespace quire::server
