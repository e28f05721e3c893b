package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// pullReasons are the reasons of containers that wait for their image.
var pullReasons = []string{"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "SignatureValidationFailed", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}

// The kubelet's Events about images: a failed pull, which a container's state does not explain before Kubernetes 1.31, and
// missing pull Secrets.
const (
	pullEvent         = "Failed"
	pullPrefix        = "Failed to pull image "
	secretEvent       = "FailedToRetrieveImagePullSecret"
	longestPullFailed = 600
)

// isPullEvent reports whether an Event about a pod explains why an image cannot be pulled.
func isPullEvent(reason, message string) bool {
	return reason == secretEvent || reason == pullEvent && strings.HasPrefix(message, pullPrefix)
}

// waitsForImage returns the first container of a pod whose image cannot be pulled, and the image; nil if there is none.
func waitsForImage(p *corev1.Pod) (c *corev1.ContainerStatus, image string) {
	statuses := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	at := slices.IndexFunc(statuses, func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && slices.Contains(pullReasons, c.State.Waiting.Reason)
	})
	if at < 0 {
		return nil, ""
	}
	for _, spec := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if spec.Name == statuses[at].Name {
			image = spec.Image
		}
	}
	return &statuses[at], image
}

// withPullFailure adds why the image of a container cannot be pulled to a finding about its pod, and the remedy.
func (s *Site) withPullFailure(f Finding, p *corev1.Pod) Finding {
	c, image := waitsForImage(p)
	if c == nil || !strings.HasPrefix(f.Message, "container "+c.Name+": "+c.State.Waiting.Reason) { // another container is worse
		return f
	}
	message := c.State.Waiting.Message
	var failure, secret *corev1.Event
	for _, e := range all[corev1.Event](s, podEvents, AtInfra) {
		latest := &failure
		if e.Reason == secretEvent {
			latest = &secret
		}
		if e.InvolvedObject.UID == p.UID && isPullEvent(e.Reason, e.Message) && (*latest == nil || e.LastTimestamp.After((*latest).LastTimestamp.Time)) {
			*latest = e
		}
	}
	if failure != nil && (message == "" || strings.HasPrefix(message, "Back-off pulling image ") && !strings.Contains(message, ": ")) {
		message = failure.Message
	}
	pull := failedPull{image: image, node: p.Spec.NodeName, namespace: p.Namespace}
	for _, named := range p.Spec.ImagePullSecrets {
		pull.secrets = append(pull.secrets, named.Name)
	}
	why, remedy := pull.explain(c.State.Waiting.Reason + ": " + message)
	f.Message = fmt.Sprintf("container %s: node %s cannot pull image %s: %s", c.Name, p.Spec.NodeName, image, why)
	f.Remedy = remedy
	text := credential.ReplaceAllString(strings.Join(strings.Fields(message), " "), "[...]")
	if len(text) > longestPullFailed { // the cause is at the end
		text = "..." + strings.ToValidUTF8(text[len(text)-longestPullFailed:], "")
	}
	f = f.because(strings.TrimSuffix(c.State.Waiting.Reason+": "+text, ": "))
	if secret != nil {
		f = f.because(secretEvent + ": " + secret.Message)
	}
	for _, other := range s.componentPods() {
		if other.Spec.NodeName != p.Spec.NodeName && runsImage(other, image) {
			return f.because(fmt.Sprintf("node %s has the image: Pod %s runs it", other.Spec.NodeName, other.Name))
		}
	}
	return f
}

// runsImage reports whether a container of a pod runs an image.
func runsImage(p *corev1.Pod, image string) bool {
	return slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(spec corev1.Container) bool {
		return spec.Image == image && slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
			return c.Name == spec.Name && c.ImageID != ""
		})
	})
}

// A failedPull is an image that a node could not pull for a pod with pull Secrets.
type failedPull struct {
	image, node, namespace string
	secrets                []string
}

// pullCauses are the causes of failed pulls by what the container runtime says. With mirrors it may say several.
var pullCauses = []struct {
	says   *regexp.Regexp
	why    string
	remedy func(failedPull) string
}{
	{regexp.MustCompile(`(?i)unauthorized|authentication required|authorization failed|access denied|access to the resource is denied|no basic auth|invalid username|\b40[13]\b|forbidden`), "the registry rejects its credentials", failedPull.credentials},
	{regexp.MustCompile(`(?i)not found|(manifest|name|repository) unknown|does not exist|\b404\b|InvalidImageName`), "the registry does not have it", failedPull.otherImage},
	{regexp.MustCompile(`(?i)x509:|certificate|HTTP response to HTTPS client`), "the node does not trust the registry's certificate", func(p failedPull) string {
		return fmt.Sprintf("let node %s trust the CA of registry %s: on OpenShift additionalTrustedCA of image.config.openshift.io/cluster, else the configuration of the container runtime", p.node, p.registry())
	}},
	{regexp.MustCompile(`(?i)toomanyrequests|too many requests|\b429\b|rate limit`), "the registry limits the rate of its requests", func(p failedPull) string {
		return "wait, or " + p.mirror()
	}},
	{regexp.MustCompile(`(?i)no space left|disk quota`), "its disk is full", func(p failedPull) string {
		return "free disk space on node " + p.node + ", on the file system of the container runtime"
	}},
	{regexp.MustCompile(`(?i)dial |connection re|timeout|deadline exceeded|no such host|no route to host|unreachable|proxyconnect|server misbehaving|\bEOF\b|\b50[234]\b|RegistryUnavailable`), "the registry cannot be reached", func(p failedPull) string {
		return fmt.Sprintf("let node %s reach registry %s: check its DNS, firewalls and the proxy of its container runtime; or %s", p.node, p.registry(), p.mirror())
	}},
}

// explain returns why the pull failed according to a message, and the remedy.
func (p failedPull) explain(message string) (why, remedy string) {
	if p.image != "" { // may contain any word
		message = strings.ReplaceAll(message, p.image, "")
	}
	var reasons, remedies []string
	for _, cause := range pullCauses {
		if cause.says.MatchString(message) {
			reasons, remedies = append(reasons, cause.why), append(remedies, cause.remedy(p))
		}
	}
	if len(reasons) == 0 {
		return "the container runtime reports an error", fmt.Sprintf("correct what the error says, and try it on node %s: crictl pull %s", p.node, p.image)
	}
	return strings.Join(reasons, ", or "), strings.Join(remedies, "; ")
}

// registry returns the host of the image's registry.
func (p failedPull) registry() string {
	host, _, _ := strings.Cut(setup.Repository(p.image), "/")
	return host
}

// mirror returns how to pull from another registry.
func (failedPull) mirror() string {
	return "pull from a mirror: 'kubectl oooi setup -f FILE --registry MIRROR', or an ImageDigestMirrorSet on OpenShift (docs/how-to/install-disconnected.md)"
}

// credentials returns the remedy for an image that the pod's credentials do not permit to pull.
func (p failedPull) credentials() string {
	if len(p.secrets) == 0 {
		return fmt.Sprintf("the pod names no pull Secret: create one (kubectl -n %s create secret docker-registry NAME --docker-server=%s), and run 'kubectl oooi setup -f FILE --image-pull-secret NAME'; on OpenShift, the cluster's pull Secret may have the credentials instead",
			p.namespace, p.registry())
	}
	return fmt.Sprintf("check that one of the pod's pull Secrets (%s) has valid credentials for registry %s: kubectl -n %s get secrets %s", strings.Join(p.secrets, ", "), p.registry(), p.namespace, strings.Join(p.secrets, " "))
}

// otherImage returns the remedy for an image that does not exist.
func (p failedPull) otherImage() string {
	return "correct the tag or digest: image of the component in the Infra, or --image and --envoy-image of setup ('kubectl oooi setup -f FILE --image=' deploys the image of the plugin's release); copy it to the registry if that is a mirror"
}
