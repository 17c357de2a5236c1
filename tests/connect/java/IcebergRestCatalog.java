import com.fasterxml.jackson.annotation.JsonAutoDetect.Visibility;
import com.fasterxml.jackson.annotation.PropertyAccessor;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import org.apache.iceberg.Files;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NamespaceNotEmptyException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;

/**
 * A REST catalog of Apache Iceberg, by Iceberg's own handlers of its requests, with tables in a folder of this machine. Clients
 * show the bearer token.
 *
 * <p>Usage: IcebergRestCatalog PORT FOLDER TOKEN. With a file FOLDER/lose the next commit of a table is done, and its answer is lost.
 */
public class IcebergRestCatalog {
    private static final ObjectMapper MAPPER = new ObjectMapper()
            .setVisibility(PropertyAccessor.FIELD, Visibility.ANY)
            .setPropertyNamingStrategy(PropertyNamingStrategies.KEBAB_CASE)
            .configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    private static final JdbcCatalog CATALOG = new JdbcCatalog();
    private static File folder;
    private static String token;

    /** Files of this machine, by address or path. */
    public static class LocalFiles implements FileIO {
        private static String path(String location) {
            return location.startsWith("file:") ? URI.create(location).getPath() : location;
        }

        @Override
        public InputFile newInputFile(String location) {
            return Files.localInput(path(location));
        }

        @Override
        public OutputFile newOutputFile(String location) {
            return Files.localOutput(path(location));
        }

        @Override
        public void deleteFile(String location) {
            new File(path(location)).delete();
        }
    }

    public static void main(String[] args) throws IOException {
        folder = new File(args[1]);
        token = args[2];
        RESTSerializers.registerAll(MAPPER);
        CATALOG.initialize("rest", Map.of(
                "uri", "jdbc:sqlite:" + folder + "/catalog.db",
                "warehouse", "file://" + folder + "/files",
                "io-impl", LocalFiles.class.getName(),
                "jdbc.schema-version", "V1"));
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(args[0])), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", IcebergRestCatalog::answer);
        server.start();
        System.out.println("ready");
    }

    private static void answer(HttpExchange exchange) throws IOException {
        try (exchange) {
            int status = 200;
            Object body;
            try {
                if (!("Bearer " + token).equals(exchange.getRequestHeaders().getFirst("Authorization"))) {
                    throw new SecurityException("the token is missing or wrong");
                }
                body = handled(exchange);
                status = body == null ? 204 : 200;
            } catch (RuntimeException error) {
                status = statusOf(error);
                body = ErrorResponse.builder().responseCode(status).withType(error.getClass().getSimpleName())
                        .withMessage(String.valueOf(error.getMessage())).build();
            }
            if ("POST".equals(exchange.getRequestMethod()) && status == 200 && new File(folder, "lose").delete()) {
                return;
            }
            byte[] content = body == null ? new byte[0] : MAPPER.writeValueAsBytes(body);
            exchange.getResponseHeaders().set("Content-Type", "application/json");
            boolean isEmpty = content.length == 0 || "HEAD".equals(exchange.getRequestMethod());
            exchange.sendResponseHeaders(status, isEmpty ? -1 : content.length);
            if (!isEmpty) {
                exchange.getResponseBody().write(content);
            }
        }
    }

    private static int statusOf(RuntimeException error) {
        if (error instanceof NoSuchTableException || error instanceof NoSuchNamespaceException) {
            return 404;
        }
        if (error instanceof AlreadyExistsException || error instanceof CommitFailedException
                || error instanceof NamespaceNotEmptyException) {
            return 409;
        }
        return error instanceof SecurityException ? 401 : error instanceof IllegalArgumentException ? 400 : 500;
    }

    private static <T> T read(HttpExchange exchange, Class<T> type) throws IOException {
        return MAPPER.readValue(exchange.getRequestBody(), type);
    }

    /** Return the answer to a request; null: there is nothing to say. */
    private static Object handled(HttpExchange exchange) throws IOException {
        String method = exchange.getRequestMethod();
        List<String> parts = Arrays.asList(exchange.getRequestURI().getRawPath().substring(1).split("/"));
        if (parts.equals(List.of("v1", "config"))) {
            return ConfigResponse.builder().build();
        }
        if (parts.size() < 2 || !parts.subList(0, 2).equals(List.of("v1", "namespaces"))) {
            throw new IllegalArgumentException("no such address: " + exchange.getRequestURI());
        }
        if (parts.size() == 2) {
            return "POST".equals(method) ? CatalogHandlers.createNamespace(CATALOG, read(exchange, CreateNamespaceRequest.class))
                    : CatalogHandlers.listNamespaces(CATALOG, Namespace.empty());
        }
        String[] levels = URLDecoder.decode(parts.get(2), StandardCharsets.UTF_8).split("\u001f");
        Namespace namespace = Namespace.of(levels);
        if (parts.size() == 3) {
            return namespaceHandled(method, namespace);
        }
        if (parts.size() == 4) {
            if ("GET".equals(method)) {
                return CatalogHandlers.listTables(CATALOG, namespace);
            }
            CreateTableRequest request = read(exchange, CreateTableRequest.class);
            return request.stageCreate() ? CatalogHandlers.stageTableCreate(CATALOG, namespace, request)
                    : CatalogHandlers.createTable(CATALOG, namespace, request);
        }
        TableIdentifier table = TableIdentifier.of(namespace, URLDecoder.decode(parts.get(4), StandardCharsets.UTF_8));
        switch (method) {
            case "POST":
                return CatalogHandlers.updateTable(CATALOG, table, read(exchange, UpdateTableRequest.class));
            case "DELETE":
                CatalogHandlers.dropTable(CATALOG, table);
                return null;
            case "HEAD":
                CatalogHandlers.loadTable(CATALOG, table);
                return null;
            default:
                return CatalogHandlers.loadTable(CATALOG, table);
        }
    }

    private static Object namespaceHandled(String method, Namespace namespace) {
        switch (method) {
            case "DELETE":
                CatalogHandlers.dropNamespace(CATALOG, namespace);
                return null;
            case "HEAD":
                CatalogHandlers.loadNamespace(CATALOG, namespace);
                return null;
            default:
                return CatalogHandlers.loadNamespace(CATALOG, namespace);
        }
    }
}
