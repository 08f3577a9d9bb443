// Where this system keeps the certificate authorities that it trusts.
#pragma once

namespace quire::server::registry {

// The file for a libcurl that was built without a default, as in portable programs; null where libcurl has
// one, or this system has none. The lifetime is static.
const char* FindCertificateAuthorities();

}  // namespace quire::server::registry
