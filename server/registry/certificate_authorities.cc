#include "server/registry/certificate_authorities.h"

#include <curl/curl.h>
#include <unistd.h>

namespace quire::server::registry {

const char* FindCertificateAuthorities() {
  const curl_version_info_data* const version = ::curl_version_info(CURLVERSION_NOW);
  if (version->cainfo != nullptr || version->capath != nullptr) return nullptr;
  constexpr const char* kFiles[] = {
      "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Arch
      "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // Fedora, RHEL, Amazon Linux
      "/etc/pki/tls/certs/ca-bundle.crt",                   // older versions of these
      "/var/lib/ca-certificates/ca-bundle.pem",             // openSUSE
      "/etc/ssl/cert.pem",                                  // Alpine
  };
  for (const char* file : kFiles) {
    if (::access(file, R_OK) == 0) return file;
  }
  return nullptr;
}

}  // namespace quire::server::registry
