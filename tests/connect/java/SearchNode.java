import java.io.IOException;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;
import org.opensearch.transport.Netty4Plugin;

/** A node of OpenSearch that ends with its standard input. Arguments: folder, port, and settings as name=value. */
public final class SearchNode extends Node {
    private SearchNode(Environment environment, Collection<Class<? extends Plugin>> plugins) {
        super(environment, plugins, false);
    }

    public static void main(String[] arguments) throws Exception {
        Settings.Builder settings = Settings.builder()
            .put("path.home", arguments[0])
            .put("http.port", arguments[1])
            .put("transport.port", "0")
            .put("network.host", "127.0.0.1")
            .put("discovery.type", "single-node")
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            .put("cluster.name", "tests")
            .put("node.name", "one")
            .put("node.processors", "1")
            .put("cluster.routing.allocation.disk.threshold_enabled", "false");
        for (int i = 2; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        Environment environment =
            InternalSettingsPreparer.prepareEnvironment(settings.build(), Map.of(), null, () -> "one");
        Node node = new SearchNode(environment, List.of(Netty4Plugin.class));
        node.start();
        System.out.println("started");
        waitForEnd();
        node.close();
        System.exit(0);
    }

    private static void waitForEnd() throws IOException {
        while (System.in.read() >= 0) {
            // whoever started it has not gone
        }
    }
}
